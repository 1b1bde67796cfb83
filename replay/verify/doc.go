// Package verify proves that a store is equal to a straight fold of the log, and repairs the rows that are not.
//
//	log ──► shadow: a fresh store of the same projection, built in a scratch directory (package build), at a pace,
//	          │  and folded exactly to the position of a view of the live store
//	          ▼
//	        compare ◄── view of the live store        nothing is held, readers and folds continue
//	          │
//	          │  keys that differ
//	          ▼
//	        repair: the fold is held, the shadow folds exactly to its position, rows that still differ are written
//	          │
//	          └──► compare again, since errors may have spread meanwhile
//
// The shadow of a store that holds some partitions is built for the same ones. A verification ends when the store is resized meanwhile.
//
// A repair writes only rows of a fold of the log, at the position of the commit that writes them (I1, I3). It never touches a row that
// is equal. A shadow runs the same fold as the store, so it cannot find a bug of the fold: that is the task of package audit.
//
//	shadow.go    the shadow; disk.go: its disk
//	compare.go   the comparison of rows; difference.go: its result for people
//	verify.go    the two tools; repair.go: the writing of rows
package verify
