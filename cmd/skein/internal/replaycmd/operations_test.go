package replaycmd

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestKindHelpNamesEveryKindOfOperation checks that the help of --kind names each kind of the API,
// so that a new kind is not forgotten.
func TestKindHelpNamesEveryKindOfOperation(t *testing.T) {
	field, _ := reflect.TypeFor[operationsCmd]().FieldByName("Kind")
	kinds := operationKinds()
	last := len(kinds) - 1
	want := "List only operations of this kind: " + strings.Join(kinds[:last], ", ") + " or " + kinds[last] + "."
	if got := field.Tag.Get("help"); got != want {
		t.Errorf("help of --kind: got %q, want %q", got, want)
	}
}

// adminService is an AdminService that answers ListOperations with the given pages of operations,
// and records the requests. It gives every page a token of a next page, also the last one.
type adminService struct {
	skeinv1connect.UnimplementedAdminServiceHandler

	pages    [][]*skeinv1.Operation
	requests []*skeinv1.ListOperationsRequest
}

// ListOperations returns the next page, and an empty page after the last one.
func (s *adminService) ListOperations(
	_ context.Context, req *connect.Request[skeinv1.ListOperationsRequest],
) (*connect.Response[skeinv1.ListOperationsResponse], error) {
	res := &skeinv1.ListOperationsResponse{NextPageToken: fmt.Sprint("token-", len(s.requests))}
	if len(s.requests) < len(s.pages) {
		res.Operations = s.pages[len(s.requests)]
	}
	s.requests = append(s.requests, req.Msg)
	return connect.NewResponse(res), nil
}

// TestListReadsPagesUpToLimit lists operations of a service that always offers another page. The
// list ends at the limit, or at an empty page.
func TestListReadsPagesUpToLimit(t *testing.T) {
	newPage := func(ids ...string) (page []*skeinv1.Operation) {
		for _, id := range ids {
			page = append(page, &skeinv1.Operation{OperationId: id})
		}
		return page
	}

	for _, c := range []struct {
		name       string
		limit      int32
		wantIDs    []string
		wantTokens []string // of the calls
	}{
		{"limit within a page", 1, []string{"5"}, []string{""}},
		{"limit at the end of a page", 2, []string{"5", "4"}, []string{""}},
		{"limit in the second page", 3, []string{"5", "4", "3"}, []string{"", "token-0"}},
		{"empty page with a token", 9, []string{"5", "4", "3", "2"}, []string{"", "token-0", "token-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := &adminService{pages: [][]*skeinv1.Operation{newPage("5", "4"), newPage("3", "2")}}
			_, handler := skeinv1connect.NewAdminServiceHandler(service)
			server := httptest.NewServer(handler)
			defer server.Close()

			cmd := operationsCmd{Limit: c.limit, ClientFlags: command.ClientFlags{Server: server.URL, Timeout: time.Minute}}
			operations, err := cmd.listOperations(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			var ids []string
			for _, op := range operations {
				ids = append(ids, op.GetOperationId())
			}
			if diff := cmp.Diff(c.wantIDs, ids); diff != "" {
				t.Errorf("ids of the operations (-want +got):\n%s", diff)
			}

			var tokens []string
			for _, req := range service.requests {
				tokens = append(tokens, req.GetPageToken())
			}
			if diff := cmp.Diff(c.wantTokens, tokens); diff != "" {
				t.Errorf("page tokens of the calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnknownKindOfOperationIsRefused checks that only the empty name means all kinds, and that
// unknown names are refused.
func TestUnknownKindOfOperationIsRefused(t *testing.T) {
	if kind, err := parseOperationKind(""); err != nil || kind != skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED {
		t.Errorf("no name: got %v, %v, want UNSPECIFIED", kind, err)
	}
	kind, err := parseOperationKind("erase")
	if err != nil || kind != skeinv1.OperationKind_OPERATION_KIND_ERASE {
		t.Errorf("erase: got %v, %v, want ERASE", kind, err)
	}
	for _, name := range []string{"unspecified", "compaction", "rebuild ", "REBUILD"} {
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
