-- The end of Grafana's init.sql. The plugin runs it for each connection of its pool, so it sets nothing that a second run could not set again.
SET VARIABLE loom_dir = '/var/lib/loom/demo.loom';
SET TimeZone = 'UTC';
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
SET enable_external_access = false;
