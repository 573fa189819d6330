// Something to load.
int plugin_version(void) { return 4; }
