// Package flags has the flags that several commands share: the archive, the NATS servers, the settings of folds, the log messages of the
// process, and sizes.
package flags
