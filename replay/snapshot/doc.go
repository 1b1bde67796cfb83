// Package snapshot stores copies of stores, with their positions in the log, in a bucket, and
// restores stores from them.
//
//	store ──Checkpoint──► files, hard links ──► sha256 ──► snapshot-files/<sha256>        if not there yet
//	                                                  └──► snapshots/<name>/<projection>  the manifest, written last
//
//	manifest ──► files, each checked ──► opened, position compared ──► renamed into place ──► the log's tail is folded
//
// # Invariants
//
// The manifest defines the snapshot. It names every file with its size and checksum, the log and
// the position, and the version and settings of the fold that has built the store. It is written
// when all its files are in the bucket, and it has a checksum of its own. A file that no manifest
// names is garbage, which the next pruning removes. So if a process dies while it takes a snapshot,
// the previous snapshots are not affected.
//
// The name of a file in the bucket is the hash of its content. Tables of a store never change, so a
// snapshot uploads only those tables that are newer than the last snapshot.
//
// A process holds a claim in the bucket while it takes or removes snapshots. Otherwise, one process
// could remove a file that another one has found in the bucket and is about to name in a manifest.
// A claim must be renewed, or it expires.
//
// A restore trusts nothing in a snapshot. Only if the downloaded files have the checksums of the
// manifest, and open as a store of the wanted projection at the position in the manifest, do they
// become the store. Otherwise nothing changes.
package snapshot
