"""Gates: what is asked of one finished wheel, and the evidence that each gives. They read bytes and never build or sign."""
