package replaycmd

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestKindFlagOffersEveryKindOfOperation checks that --kind accepts no kind and each kind of the API, so that a new kind is not forgotten.
func TestKindFlagOffersEveryKindOfOperation(t *testing.T) {
	field, _ := reflect.TypeFor[operationsCmd]().FieldByName("Kind")
	offered := strings.Split(field.Tag.Get("enum"), ",")
	if diff := cmp.Diff(append([]string{""}, operationKinds()...), offered); diff != "" {
		t.Errorf("the values of --kind (-want +got):\n%s", diff)
	}
	if got, want := len(operationKinds()), len(skeinv1.OperationKind_name)-1; got != want {
		t.Errorf("got %d kinds of operations, want %d", got, want)
	}
}

// TestUnknownKindOfOperationIsRefused checks that no unknown name stands for all operations.
func TestUnknownKindOfOperationIsRefused(t *testing.T) {
	kind, err := parseOperationKind("erase")
	if err != nil || kind != skeinv1.OperationKind_OPERATION_KIND_ERASE {
		t.Errorf("erase: got %v, %v, want ERASE", kind, err)
	}
	for _, name := range []string{"unspecified", "compaction", "rebuild "} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOperationKind(name)
			if _, ok := errors.AsType[command.UsageError](err); !ok {
				t.Fatalf("got %v, want a usage error", err)
			}
			want := "only rebuild, verify, repair, rollback, snapshot, erase"
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want a text that contains %q", err, want)
			}
		})
	}
}
