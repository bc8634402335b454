"""What the tests share: programs and readers to test with, media to read, and what must be left behind."""
