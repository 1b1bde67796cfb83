package inboxcache

import (
	"reflect"
	"testing"
)

// TestChargedBytesAreSizeOfNewestKeys checks that the bytes that are counted for NewestKeys, besides
// those of the keys, are their real size.
func TestChargedBytesAreSizeOfNewestKeys(t *testing.T) {
	if got := reflect.TypeFor[NewestKeys]().Size(); got != newestKeysOverhead {
		t.Errorf("got a size of NewestKeys of %d bytes, want %d as counted", got, newestKeysOverhead)
	}
	if got := reflect.TypeFor[[]byte]().Size(); got != sortKeyOverhead {
		t.Errorf("got a size of a slice of %d bytes, want %d as counted", got, sortKeyOverhead)
	}
}
