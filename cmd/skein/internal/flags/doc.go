// Package flags has the flags that several commands have in common, and what they mean: where the archive is, which NATS, the
// settings of folds, how a process writes its log, sizes.
package flags
