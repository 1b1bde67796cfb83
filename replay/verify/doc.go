// Package verify proves a store equal to a straight fold of the log, and heals the rows that are not.
//
//	log ──► shadow: a fresh store of the same projection, built in a scratch directory (package build), at a pace,
//	          │  and folded exactly to the position of a view of the live store
//	          ▼
//	        compare ◄── view of the live store        nothing is held, readers and folds go on
//	          │
//	          │  keys that differ
//	          ▼
//	        repair: the fold is held, the shadow folds exactly to its position, what differs still is written
//	          │
//	          └──► compare again, since errors may have spread meanwhile
//
// What is written is a row of a fold of the log, at the position of the commit that writes it (I1, I3). A row that is equal is
// never touched. A shadow runs the same fold, so that a fold that is wrong proves itself right: that is for the audits
// (package audit).
//
//	shadow.go   the shadow; disk.go: what it takes; compare.go, difference.go: rows side by side; verify.go, repair.go: the two tools
package verify
