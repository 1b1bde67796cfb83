package inboxcache

import (
	"reflect"
	"testing"
)

// TestNewestKeysBytes: what is counted of NewestKeys beside the bytes of the keys is what they take.
func TestNewestKeysBytes(t *testing.T) {
	if got := reflect.TypeFor[NewestKeys]().Size(); got != newestKeysBytes {
		t.Errorf("NewestKeys take %d bytes, %d are counted", got, newestKeysBytes)
	}
	if got := reflect.TypeFor[[]byte]().Size(); got != sliceBytes {
		t.Errorf("a slice takes %d bytes, %d are counted", got, sliceBytes)
	}
}
