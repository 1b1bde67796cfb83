// Mutants is a tool for those who work on skein: it proves that the tests bite. Every invariant has at
// least one mutant, a small change of the source that breaks it, and every mutant names a test that must fail when the
// change is made. A mutant that its test does not notice has survived, and the tool fails.
//
// A mutant is a text file TESTDATA/mutants/NAME.mutant in the testdata folder of the package that it changes:
//
//	# invariant: I3
//	# test: ./projections/store -run ^TestPowerCut$ -short
//	# The position is committed apart from the rows.
//	--- projections/store/commit.go
//		return b.Commit(sync)
//	+++
//		return errors.Join(b.CommitRows(sync), b.CommitPosition(sync))
//
// The lines that begin with # come first; those with a colon after a known word say which invariant is broken (or
// several: I3, I6) and which test notices, the others say how. Then come one or more changes: --- and the path of the
// file from the root of the repository, the lines as they are, +++, and the lines as they must be (none, to take lines
// out). The lines as they are must occur exactly once in the file, as whole lines, so that a mutant that no longer fits
// the source is an error and not a silent success.
//
// The source is not touched: the changed files are written to a temporary folder and given to the compiler as an
// overlay. Each named test is run once without any change, and must pass; with the change the test binary must
// build, and the test must fail or run into the time limit. A change that does not compile proves nothing and is an error.
package main
