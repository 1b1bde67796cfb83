// Package imports is the command `skein import`. It publishes history from files of delimited text
// (file.go, input.go) or from a live Redis (redis.go). The packages replay/importer and
// replay/importer/redis read, check and publish the records; this package has the flags, the
// progress and the reports.
package imports
