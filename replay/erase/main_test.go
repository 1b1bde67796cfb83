package erase

import (
	"flag"
	"testing"

	"github.com/skein-feed/skein/events/testmain"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // parallel tests mostly wait, for disks
	testmain.Run(m)
}
