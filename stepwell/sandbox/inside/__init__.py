"""What runs on the other side of the wall: the standard library alone, and these files. Nothing of Stepwell is imported here."""
