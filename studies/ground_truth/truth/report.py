def write_report(out, scale):
    pass
