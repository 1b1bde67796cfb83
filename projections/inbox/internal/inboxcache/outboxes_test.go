package inboxcache

import (
	"reflect"
	"testing"
)

// TestChargedBytesAreSizeOfNewestKeys: what is counted of NewestKeys beside the bytes of the keys
// is what they take.
func TestChargedBytesAreSizeOfNewestKeys(t *testing.T) {
	if got := reflect.TypeFor[NewestKeys]().Size(); got != newestKeysOverhead {
		t.Errorf("NewestKeys take %d bytes, %d are counted", got, newestKeysOverhead)
	}
	if got := reflect.TypeFor[[]byte]().Size(); got != sortKeyOverhead {
		t.Errorf("a slice takes %d bytes, %d are counted", got, sortKeyOverhead)
	}
}
