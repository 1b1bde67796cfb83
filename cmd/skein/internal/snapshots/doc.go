// Package snapshots has the commands `skein snapshot`, `skein restore` and `skein
// finalize-upgrade`. A snapshot is a copy of the store of a projection in a directory or a bucket
// of S3, the target.
package snapshots
