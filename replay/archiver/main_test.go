package archiver

import (
	"testing"

	"github.com/skein-feed/skein/events/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
