// Package snapshot keeps copies of stores, with their positions, in a bucket, and restores stores from them.
//
//	store ──Checkpoint──► files, hard links ──► sha256 ──► snapshot-files/<sha256>        those not there yet
//	                                                  └──► snapshots/<name>/<projection>  the manifest, written last
//
//	manifest ──► files, each checked ──► opened, position compared ──► renamed into place ──► the log's tail is folded
//
// # Invariants
//
// The manifest defines the snapshot. It names every file with its size and checksum, the log and the position, and the fold and settings
// that have built the store. It is written when all its files are in the bucket, and has its own checksum. A file that no manifest
// names is garbage, which the next pruning removes. So a process that dies while it takes a snapshot leaves the previous ones as they
// were.
//
// The name of a file is the hash of its content. Tables of a store never change, so a snapshot uploads only tables that are newer than
// the last snapshot.
//
// A process that takes or removes snapshots holds a claim in the bucket meanwhile. Otherwise one process could remove a file that another
// has found there and is about to name in a manifest. The claim is renewed, and void if it is not.
//
// A restore trusts nothing in a snapshot. The restored files have the checksums of the manifest, and open as a store of the wanted
// projection at the position in the manifest; otherwise the target stays as it was.
package snapshot
