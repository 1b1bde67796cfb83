// Package flags has flags that several commands share: those for the archive of the log, the NATS
// servers, the settings of folds (the functions that compute stores from the log) and the log
// messages of the process, and the type of flags for sizes.
package flags
