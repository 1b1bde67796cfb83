// Package snapshot keeps copies of stores, with the positions that they are at, in a bucket, and makes stores of them.
//
//	store ──Checkpoint──► files, hard links ──► sha256 ──► snapshot-files/<sha256>        what is not there yet
//	                                                  └──► snapshots/<name>/<projection>  the manifest, written last
//
//	manifest ──► files, each checked ──► opened, position compared ──► renamed into place ──► the log's tail is folded
//
// # What holds
//
// The manifest is the truth. It names every file with its size and checksum, the log and the position, and what the store
// was built with; it is written when all its files are in the bucket, and read only as a whole, under a checksum of its own.
// Files that no manifest names are garbage, which the next pruning removes: a process that dies while it takes a snapshot
// leaves the previous ones as they were.
//
// Files are named by what is in them. Tables of a store never change, so a snapshot brings only those that are new since
// the last.
//
// Whoever takes or removes snapshots holds a claim in the bucket meanwhile, since a file that is found there must not be
// removed before the manifest that names it is written. The claim is renewed, and void when it no longer is.
//
// Nothing of a snapshot is trusted: what is restored has the checksums of its manifest and opens as a store of the wanted
// projection at the position that the manifest says, or the target stays as it was.
package snapshot
