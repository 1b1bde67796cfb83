package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestEveryMethodAnswers checks that every method of every service is there. Methods that need
// something that this process does not have must name what they need.
func TestEveryMethodAnswers(t *testing.T) {
	demandMethods(newWorld(t, withFeeds, withSeen, withCounters, withNotifications), 36, 10)
}

// TestMethodsOfAnOperator checks the same for a process that has an operator, but only the
// projection of the graph.
func TestMethodsOfAnOperator(t *testing.T) {
	demandMethods(newWorld(t, withOperator(&notebook{})), 29, 17)
}

// TestMethodsOfTheGraphAlone checks the same for a process that has only the projection of the
// graph.
func TestMethodsOfTheGraphAlone(t *testing.T) {
	demandMethods(newWorld(t), 19, 27)
}

// demandMethods calls all methods with an empty request. The implemented ones must accept or refuse
// the request, and the others must say what they need.
func demandMethods(w *world, wantImplemented, wantUnimplemented int) {
	t := w.t
	t.Helper()
	implemented := 0
	unimplemented := 0
	for _, service := range services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			name := fmt.Sprintf("%s/%s", service.FullName(), method.Name())
			err := w.callEmpty(name, method.IsStreamingServer())

			if w.server.unimplemented[name] {
				unimplemented++
				wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
				if want := string(method.Name()) + " needs "; err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got error %q, want one that contains %q", name, err, want)
				}
				continue
			}

			implemented++
			code := connect.CodeOf(err)
			isExpected := err == nil || code == connect.CodeInvalidArgument
			// The operator of the test has no place for snapshots.
			if strings.HasSuffix(name, "/TakeSnapshot") && code == connect.CodeUnimplemented {
				isExpected = true
			}
			if !isExpected {
				t.Errorf("%s: got error %v, want none or code %v", name, err, connect.CodeInvalidArgument)
			}
		}
	}
	if implemented != wantImplemented || unimplemented != wantUnimplemented {
		t.Errorf("got %d implemented and %d unimplemented methods, want %d and %d",
			implemented, unimplemented, wantImplemented, wantUnimplemented)
	}
}

// callEmpty calls a method with an empty request, and returns its error.
func (w *world) callEmpty(method string, isStream bool) error {
	w.t.Helper()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](w.http, w.url+"/"+method)
	if !isStream {
		_, err := client.CallUnary(w.t.Context(), connect.NewRequest(&emptypb.Empty{}))
		return err
	}

	ctx, cancel := context.WithCancel(w.t.Context())
	stream, err := client.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	for stream.Receive() {
		// This stream never ends by itself.
		if strings.HasSuffix(method, "EventService/Watch") {
			break
		}
	}
	err = stream.Err()
	cancel()
	_ = stream.Close()
	return err
}
