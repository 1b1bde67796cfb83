// Package imports is the command `skein import`: history from files of delimited text (file.go), and from a live Redis (redis.go).
// What reads, checks and publishes it is in replay/importer and replay/importer/redis; this is flags, progress and reports.
package imports
