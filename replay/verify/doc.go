// Package verify proves that a store is equal to a fresh fold of the log, and repairs the rows that
// are not.
//
//	log ──► shadow: a fresh store of the same projection, built in a scratch directory (package build), throttled,
//	          │  and folded exactly to the position of a view of the live store
//	          ▼
//	        compare ◄── view of the live store        readers and the live fold continue
//	          │
//	          │  keys of the rows that differ
//	          ▼
//	        repair: the live fold is stopped, the shadow folds exactly to its position, rows that still differ are written
//	          │
//	          └──► compare again, since errors may have spread in the meantime
//
// The shadow of a store that holds some of the partitions is built for the same ones. If the store
// is resized during a verification, the verification fails.
//
// A repair only writes rows of a fold of the log, at the position of the commit that writes them
// (I1, I3). It never touches a row that is equal. A shadow runs the same fold as the live store, so
// it cannot find a bug of the fold: that is the task of package audit.
//
//	shadow.go    builds the shadow; disk.go: checks the free disk
//	compare.go   compares the rows; difference.go: describes a difference for people
//	verify.go    Verify and Repair; repair.go: writes rows
package verify
