"""Problems and expert solutions of published benchmarks, from files or a hub; and which of them are in two sets."""
