package verify

import (
	"testing"

	"github.com/skein-feed/skein/projections/store"
)

// TestReportAfterErrorClaimsNothing checks that the report of an interrupted verification neither says
// that rows are equal which were not compared, nor leaves out damage that was found.
func TestReportAfterErrorClaimsNothing(t *testing.T) {
	interrupted := &Report{
		Projection:   "graph",
		Files:        store.FileCheck{Tables: 2, Damaged: []string{"000007.sst: checksum"}},
		FilesSkipped: "the disk is full",
	}
	const want = "the comparison of graph with the log was not finished; its files on disk were not all read: the disk is full; " +
		"of 2 tables on disk 1 are damaged\ndamaged: 000007.sst: checksum"
	if got := interrupted.afterError().String(); got != want {
		t.Errorf("got the report\n%s\nwant\n%s", got, want)
	}
}
