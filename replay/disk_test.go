package replay_test

import (
	"errors"
	"math"
	"testing"

	"github.com/skein-feed/skein/replay"
)

func TestDiskErrorsNameBothSizes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string // empty for no error
	}{
		{replay.CheckSpace("a shadow of graph", replay.BuildSpace(100<<20), 130<<20), ""},
		{
			replay.CheckSpace("a shadow of graph", replay.BuildSpace(100<<20), 130<<20-1),
			"not enough disk: for a shadow of graph 130 MiB are needed, 129 MiB are free",
		},
		{replay.CheckSpace("x", 20<<30, 9<<30), "not enough disk: for x 20 GiB are needed, 9 GiB are free"},
		{replay.CheckFree(256<<20, 256<<20), ""},
		{replay.CheckFree(256<<20, 1025), "not enough disk: 1025 B are left, 256 MiB must stay free"},
		{replay.CheckFree(1, 0), "not enough disk: 0 B are left, 1 B must stay free"},
		{replay.CheckFree(0, 0), ""},
		{replay.CheckSpace("x", math.MaxUint64, math.MaxUint64), ""},
	} {
		switch {
		case tc.want == "" && tc.err != nil:
			t.Errorf("got the error %v, expected none", tc.err)
		case tc.want != "" && (!errors.Is(tc.err, replay.ErrDisk) || tc.err.Error() != tc.want):
			t.Errorf("got the error %v, expected %s", tc.err, tc.want)
		}
	}
}
