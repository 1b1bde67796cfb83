package model_test

import (
	"testing"

	"github.com/skein-feed/skein/events/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }
