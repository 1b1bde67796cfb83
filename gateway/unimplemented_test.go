package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Every method of every service is there. Those that wait for a projection say which.
func TestEveryMethodAnswers(t *testing.T) {
	demandMethods(newWorld(t, withFeeds, withSeen, withCounters, withNotifications), 36, 10)
}

// With an operator what is missing waits for projections.
func TestMethodsOfAnOperator(t *testing.T) {
	demandMethods(newWorld(t, withOperator(&notebook{})), 29, 17)
}

// Without an inbox there are no feeds, and so on.
func TestMethodsOfTheGraphAlone(t *testing.T) {
	demandMethods(newWorld(t), 19, 27)
}

func demandMethods(w *world, wantHere, wantAbsent int) {
	t := w.t
	t.Helper()
	var here, absent int
	for _, service := range services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			name := fmt.Sprintf("%s/%s", service.FullName(), m.Name())
			client := connect.NewClient[emptypb.Empty, emptypb.Empty](w.http, w.url+"/"+name)
			var err error
			if m.IsStreamingServer() {
				ctx, cancel := context.WithCancel(t.Context())
				stream, serr := client.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
				if serr != nil {
					t.Fatal(serr)
				}
				// One that continues for ever has begun.
				for stream.Receive() {
					if strings.HasSuffix(name, "EventService/Watch") {
						break
					}
				}
				err = stream.Err()
				cancel()
				_ = stream.Close()
			} else {
				_, err = client.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
			}
			if !w.server.unimplemented[name] {
				here++
				if code := connect.CodeOf(err); err != nil && code != connect.CodeInvalidArgument && !strings.Contains(name, "TakeSnapshot") {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			absent++
			wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
			if err != nil && !strings.Contains(err.Error(), string(m.Name())+" needs ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if here != wantHere || absent != wantAbsent {
		t.Errorf("%d methods are here, %d are not", here, absent)
	}
}
