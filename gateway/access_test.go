package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// callForError makes a call and returns the code and the reason of its error. Both are empty if the
// call succeeds. An empty token means that the call has none.
func (g *guarded) callForError(t testing.TB, procedure, contentType string, body []byte, token string) (code, reason string) {
	t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	status, header, answer := g.post(procedure, contentType, bytes.NewReader(body), headers...)
	if status == http.StatusOK {
		return "", ""
	}

	// Answers with status 401, and no others, tell the caller to send a bearer token.
	asksForToken := header.Get("WWW-Authenticate") == "Bearer"
	if asksForToken != (status == http.StatusUnauthorized) {
		t.Errorf("%s: got status %d with WWW-Authenticate %q", procedure, status, header.Get("WWW-Authenticate"))
	}
	e := parseError(t, answer)
	return e.Code, e.reason()
}

// apiMethods returns all methods of the API and of health checks by their procedure.
func apiMethods() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	for _, s := range append(services(), healthv1.File_grpc_health_v1_health_proto.Services().Get(0)) {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			all[fmt.Sprintf("/%s/%s", s.FullName(), m.Name())] = m
		}
	}
	return all
}

// TestEveryMethodHasItsRight checks that the table of rights has exactly the methods of the API,
// and that docs/access.md shows the same table.
func TestEveryMethodHasItsRight(t *testing.T) {
	methods := apiMethods()
	for procedure := range methods {
		r, ok := rights[procedure]
		if !ok || r.open == (r.roles != 0) {
			t.Errorf("%s: got the right %+v, want either roles or open", procedure, r)
		}
		if wantOpen := strings.HasPrefix(procedure, "/grpc.health.v1."); r.open != wantOpen {
			t.Errorf("%s: got open %v, want %v", procedure, r.open, wantOpen)
		}
	}
	for procedure := range rights {
		if methods[procedure] == nil {
			t.Errorf("the rights have %s, which is no method", procedure)
		}
	}

	page, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rightsAsDocumented(), parseDocumentedRights(string(page))); diff != "" {
		t.Errorf("table of docs/access.md (-want +got)\n%s", diff)
	}
}

// rightsAsDocumented returns, for each method, the cells that docs/access.md must have: who may
// call the method, and what callers get who are bound to a user.
func rightsAsDocumented() map[string]string {
	cells := map[string]string{}
	for procedure, r := range rights {
		roles := "`" + strings.ReplaceAll(r.roles.String(), ",", "` or `") + "`"
		bound := r.bound.text
		if r.open {
			roles = "none: open"
			bound = "everything"
		}
		if bound == "" {
			bound = "nothing"
		}
		name := strings.TrimPrefix(strings.TrimPrefix(procedure, "/skein.v1."), "/")
		cells[name] = roles + " | " + bound
	}
	return cells
}

// parseDocumentedRights returns what rightsAsDocumented does, as the page has it. A row of its
// table has one or more methods.
func parseDocumentedRights(page string) map[string]string {
	cells := map[string]string{}
	for line := range strings.Lines(page) {
		columns := strings.Split(strings.Trim(line, "|\n "), " | ")
		if !strings.HasPrefix(line, "| `") || len(columns) != 3 || !strings.Contains(columns[0], "/") {
			continue
		}
		for name := range strings.SplitSeq(strings.ReplaceAll(columns[0], "`", ""), ", ") {
			cells[name] = columns[1] + " | " + columns[2]
		}
	}
	return cells
}

// newRequestAbout returns a request of the method that is about the user wherever a request can be
// about a user.
func newRequestAbout(t testing.TB, m protoreflect.MethodDescriptor, user string) proto.Message {
	t.Helper()
	messageType, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}

	// Fill in the fields that many requests have.
	msg := messageType.New()
	fields := m.Input().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch name := f.Name(); {
		case name == "viewer_id" || name == "reader_id" || name == "user_id" || name == "owner_id":
			msg.Set(f, protoreflect.ValueOfString(user))
		case name == "user_ids":
			msg.Mutable(f).List().Append(protoreflect.ValueOfString("bob"))
		case name == "board" && f.ContainingOneof() == nil:
			msg.Set(f, protoreflect.ValueOfMessage(board("bob", "bread").ProtoReflect()))
		}
	}

	// Fill in what only one request has.
	switch req := msg.Interface().(type) {
	case *skeinv1.CheckFollowsRequest:
		req.Pairs = []*skeinv1.FollowPair{userPair("ann", "bob"), userPair(user, "bob")}
	case *skeinv1.BatchGetCountersRequest:
		req.Keys = []*skeinv1.CounterKey{countsOfItem("i")}
	case *skeinv1.ListReactorsRequest:
		req.ItemId = "i"
	case *skeinv1.BatchGetPinsRequest:
		req.Pins = []*skeinv1.Pin{pinNamed("bob", "p")}
	case *skeinv1.ExplainPinRequest:
		req.Pin = pinNamed("bob", "p")
	case *skeinv1.BatchGetViewerStateRequest:
		req.Keys = []*skeinv1.ViewerStateKey{stateOfPin("bob", "p")}
	case *skeinv1.PublishRequest:
		req.Events = []*skeinv1.Event{follow("ann", "zoe")}
		if user != "ann" {
			req.Events = append(req.Events, follow(user, "zoe"))
		}
	}
	return msg.Interface()
}

// callFormats are the two ways into the server for a unary call. The loop of the server answers
// "plain" calls itself, and passes "json" on to net/http and the handlers of Connect.
var callFormats = []struct {
	name, contentType string
	marshal           func(proto.Message) ([]byte, error)
}{
	{"plain", "application/proto", proto.Marshal},
	{"json", "application/json", protojson.Marshal},
}

// TestEveryMethodDemandsItsRole checks every unary method with tokens of every role and with tokens
// that are not valid. TestStreamsDemandTheirRole does the same for streams.
func TestEveryMethodDemandsItsRole(t *testing.T) {
	g := newGuarded(t)
	offline, err := access.ParseRoles("offline")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := access.ParseRoles("admin")
	if err != nil {
		t.Fatal(err)
	}
	callers := []struct {
		name  string
		token string
		roles access.Roles
		// tokenError is the reason why the token is not valid. It is empty for a valid one.
		tokenError string
	}{
		{"no token", "", 0, "TOKEN_MISSING"},
		{"expired token", g.tokens["old"], 0, "TOKEN_EXPIRED"},
		{"unknown token", "skein_nobody", 0, "TOKEN_INVALID"},
		{"publisher", g.tokens["publisher"], access.Publish, ""},
		{"reader", g.tokens["reader"], access.Read, ""},
		{"offline", g.tokens["offline"], offline, ""},
		{"admin", g.tokens["admin"], admin, ""},
		{"jwt", g.jwts.Token(nil), access.Read, ""},
		{"jwt without roles", g.jwts.Token(map[string]any{"skein_roles": nil}), 0, ""},
	}

	for procedure, m := range apiMethods() {
		if m.IsStreamingServer() {
			continue
		}
		r := rights[procedure]
		for _, format := range callFormats {
			body, err := format.marshal(newRequestAbout(t, m, "cid"))
			if err != nil {
				t.Fatal(err)
			}
			for _, caller := range callers {
				wantReason := caller.tokenError
				if wantReason == "" && !caller.roles.Any(r.roles) {
					wantReason = "ROLE_MISSING"
				}
				if r.open {
					wantReason = ""
				}

				// A caller who is admitted may get another error, which has another code.
				code, reason := g.callForError(t, procedure, format.contentType, body, caller.token)
				isRefused := code == "unauthenticated" || code == "permission_denied"
				if isRefused != (wantReason != "") || isRefused && reason != wantReason {
					t.Errorf("%s, %s, %s: got %q with reason %q, want reason %q", procedure, format.name, caller.name, code, reason, wantReason)
				}
			}
		}
	}
}

// TestStreamsDemandTheirRole checks that a stream demands the same role in every protocol. Unary
// calls with the same clients check that only the stream accepts the token of the role `offline`.
func TestStreamsDemandTheirRole(t *testing.T) {
	g := newGuarded(t)
	g.as(g.tokens["all"]).publish(follow("ann", "bob"))
	for protocol, options := range map[string][]connect.ClientOption{
		"connect":  nil,
		"grpc":     {connect.WithGRPC()},
		"grpc-web": {connect.WithGRPCWeb()},
		"json":     {connect.WithProtoJSON()},
	} {
		for _, c := range []struct {
			name   string
			token  string
			code   connect.Code // 0 means that the stream is answered
			reason string
			// mayList says that the caller may make a unary call for which a stream's role is of no
			// use.
			mayList bool
		}{
			{"no token", "", connect.CodeUnauthenticated, "TOKEN_MISSING", false},
			{"expired token", g.tokens["old"], connect.CodeUnauthenticated, "TOKEN_EXPIRED", false},
			{"reader", g.tokens["reader"], connect.CodePermissionDenied, "ROLE_MISSING", true},
			{"admin", g.tokens["admin"], connect.CodePermissionDenied, "ROLE_MISSING", false},
			{"bound to ann", g.tokens["ann"], connect.CodePermissionDenied, "OTHER_USER", false},
			{"offline", g.tokens["offline"], 0, "", false},
		} {
			t.Run(protocol+", "+c.name, func(t *testing.T) {
				w := g.as(c.token, options...)
				scan, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
					Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "bob"},
				}))
				if err != nil {
					t.Fatal(err)
				}
				defer scan.Close()
				wantMessage := c.code == 0
				if got := scan.Receive(); got != wantMessage {
					t.Errorf("got a message: %v, want %v; the error is %v", got, wantMessage, scan.Err())
				}
				if !wantMessage {
					wantError(t, scan.Err(), c.code, c.reason, "")
				}

				_, err = w.graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "cid"}))
				if (err == nil) != c.mayList {
					t.Errorf("ListBlocked: got %v, want success: %v", err, c.mayList)
				}
			})
		}
	}
}

// TestStreamEndsWithItsToken checks that a stream ends when its token is removed from the token
// file.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.server.reauthPeriod = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	watch, err := g.as(g.tokens["offline"]).events.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()

	g.writeTokens(t, "offline") // all but this one
	for watch.Receive() {
	}
	wantError(t, watch.Err(), connect.CodeUnauthenticated, "TOKEN_INVALID", "")
}

// TestStreamOfHealthOutlivesItsToken checks that the server does not authenticate the caller of a
// health stream again. Health needs no token, so the stream must not end with one that its caller
// happens to send.
func TestStreamOfHealthOutlivesItsToken(t *testing.T) {
	g := newGuarded(t)
	for path, want := range map[string]bool{connectv1.EventServiceWatchProcedure: true, healthv1connect.HealthWatchProcedure: false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		r.Header.Set("Authorization", "Bearer "+g.tokens["offline"])
		c := g.server.newHTTPCall(httptest.NewRecorder(), r)
		if c.authError != nil {
			t.Fatal(c.authError)
		}
		if got := c.reauthenticate != nil; got != want {
			t.Errorf("%s: authenticates its caller again: got %v, want %v", path, got, want)
		}
	}
}

// TestBoundCallerReadsOnlyItsUser checks every unary method: a caller who is bound to ann may ask
// about ann, and not about bob.
func TestBoundCallerReadsOnlyItsUser(t *testing.T) {
	g := newGuarded(t)
	tokens := map[string]string{
		"static": g.tokens["ann"],
		"jwt":    g.jwts.Token(map[string]any{"skein_user": "ann", "skein_roles": "publish read offline admin"}),
	}
	// The requests of some methods have no valid content or name what does not exist, and some
	// methods are not available in this service. Only these errors may come instead of an answer.
	errorsOfAdmittedCalls := []string{"", "invalid_argument", "not_found", "unimplemented"}

	for procedure, m := range apiMethods() {
		if m.IsStreamingServer() {
			continue
		}
		r := rights[procedure]
		for _, format := range callFormats {
			for _, user := range []string{"ann", "bob"} {
				body, err := format.marshal(newRequestAbout(t, m, user))
				if err != nil {
					t.Fatal(err)
				}
				wantReason := ""
				switch {
				case r.open, strings.HasPrefix(r.bound.text, "everything"), r.bound.text == refuseExcluders().text:
					// Everybody may ask about everybody.
				case r.bound.text == "", user != "ann":
					wantReason = "OTHER_USER"
				}

				for tokenKind, token := range tokens {
					code, reason := g.callForError(t, procedure, format.contentType, body, token)
					switch {
					case wantReason != "" && reason != wantReason:
						t.Errorf("%s, %s, %s, about %s: got %q with reason %q, want reason %q",
							procedure, format.name, tokenKind, user, code, reason, wantReason)
					case wantReason == "" && !slices.Contains(errorsOfAdmittedCalls, code):
						t.Errorf("%s, %s, %s, about %s: got %q with reason %q, want the call to be admitted",
							procedure, format.name, tokenKind, user, code, reason)
					}
				}
			}
		}
	}
}

// TestBoundCallerPublishesOnlyItsEvents publishes events as a caller who is bound to ann. Each
// comes after an event that ann may publish.
func TestBoundCallerPublishesOnlyItsEvents(t *testing.T) {
	g := newGuarded(t)
	backfill := follow("ann", "bob")
	backfill.Source = "x"
	backfill.Offset = 1 << 63
	backfill.OccurredAt = timestamppb.New(time.Unix(1e9, 0))
	for name, c := range map[string]struct {
		ev         *skeinv1.Event
		wantReason string
	}{
		"follow by ann":                    {follow("ann", "bob"), ""},
		"board of ann":                     {createBoard("ann", "bread", "Bread"), ""},
		"pin of ann":                       {pinned("ann", "bread", "p"), ""},
		"block by ann":                     {block("ann", "bob"), ""},
		"play by ann":                      {played("ann", "i"), ""},
		"follow of ann by another user":    {follow("bob", "ann"), "OTHER_USER"},
		"board of another user":            {createBoard("bob", "bread", "Bread"), "OTHER_USER"},
		"pin of another user":              {unpinned("bob", "p"), "OTHER_USER"},
		"play by another user":             {played("bob", "i"), "OTHER_USER"},
		"backfill, which acts for no user": {backfill, "OTHER_USER"},
		"score":                            {&skeinv1.Event{Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: "i"}}}, "OTHER_USER"},
		"end of imports":                   {&skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{}}}, "OTHER_USER"},
		"deletion of another user": {&skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{
			UserDeleted: &skeinv1.UserDeleted{UserId: "bob"},
		}}, "OTHER_USER"},
		"malformed follow by ann":          {follow("ann", "ann"), "SELF_RELATION"},
		"malformed follow by another user": {follow("bob", "bob"), "SELF_RELATION"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range callFormats {
				for _, allowPartial := range []bool{false, true} {
					body, err := format.marshal(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "dan"), c.ev}, AllowPartial: allowPartial})
					if err != nil {
						t.Fatal(err)
					}
					// With allow_partial, a malformed event is refused by itself and does not fail
					// the call.
					wantReason := c.wantReason
					if allowPartial && wantReason == "SELF_RELATION" {
						wantReason = ""
					}
					_, reason := g.callForError(t, connectv1.EventServicePublishProcedure, format.contentType, body, g.tokens["ann"])
					if reason != wantReason {
						t.Errorf("%s, allow_partial %v: got reason %q, want %q", format.name, allowPartial, reason, wantReason)
					}
				}
			}
		})
	}

	_, reason := g.callForError(t, connectv1.GraphServiceListBoardFollowersProcedure, "application/json",
		[]byte(`{"board":{"ownerId":"ann"},"kind":"BOARD_FOLLOWER_KIND_EXCLUDERS"}`), g.tokens["ann"])
	if reason != "OTHER_USER" {
		t.Errorf("list of users who exclude a board: got reason %q, want OTHER_USER", reason)
	}

	// The refused follow of ann is not in the log: a later position has no followers of ann either.
	w := g.as(g.tokens["all"])
	later := w.publish(played("nobody", "i"))
	followers := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "ann", AtLeast: later})
	if followers.GetTotalSize() != 0 {
		t.Errorf("got the followers %v of ann, want none", followers.GetEntries())
	}
}

// TestPagesDemandRoles checks the pages that the server has besides the API, and reflection.
func TestPagesDemandRoles(t *testing.T) {
	g := newGuarded(t)

	// Wait until all stores have caught up, so that /readyz answers with 200 below.
	for t.Context().Err() == nil {
		if status, _, _ := g.as("").get("/readyz"); status == http.StatusOK {
			break
		}
	}

	for _, c := range []struct {
		path, caller string
		wantStatus   int
	}{
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/metrics", "", 401},
		{"/metrics", "old", 401},
		{"/metrics", "publisher", 403},
		{"/metrics", "ann", 403},
		{"/metrics", "reader", 200},
		{"/metrics", "admin", 200},
		{"/nothing", "", 404},
	} {
		t.Run(c.path+" with token "+c.caller, func(t *testing.T) {
			status, _, body := g.as(g.tokens[c.caller]).get(c.path)
			if status != c.wantStatus {
				t.Errorf("got status %d, want %d: %s", status, c.wantStatus, body)
			}
		})
	}

	for name, c := range map[string]struct {
		token    string
		wantCode connect.Code // 0 means an answer
	}{
		"reflection without a token":     {"", connect.CodeUnauthenticated},
		"reflection with any valid role": {g.tokens["publisher"], 0},
	} {
		t.Run(name, func(t *testing.T) {
			stream := grpcreflect.NewClient(g.as(c.token).http, g.url, connect.WithGRPC()).NewStream(t.Context())
			_, err := stream.ListServices()
			if c.wantCode == 0 && err != nil {
				t.Errorf("got %v, want an answer", err)
			}
			if c.wantCode != 0 && connect.CodeOf(err) != c.wantCode {
				t.Errorf("got %v, want the code %v", err, c.wantCode)
			}
			_, _ = stream.Close()
		})
	}
}

// TestZeroIdentityIsRefused checks that a code path into the server that forgets to authenticate
// admits nobody, and that a method for which no right was written admits nobody.
func TestZeroIdentityIsRefused(t *testing.T) {
	g := newGuarded(t)
	checkFollows, ok := g.server.methods[connectv1.GraphServiceCheckFollowsProcedure].(*unaryMethod[
		skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest])
	if !ok {
		t.Fatalf("CheckFollows is a %T, want a unaryMethod", g.server.methods[connectv1.GraphServiceCheckFollowsProcedure])
	}
	noIdentity := identityOf(context.Background())
	_, err := checkFollows.answer(t.Context(), noIdentity, &request.Received[skeinv1.CheckFollowsRequest, *skeinv1.CheckFollowsRequest]{}, &call.Info{})
	wantError(t, err, connect.CodePermissionDenied, "ROLE_MISSING", "")

	methodWithoutRight := g.server.newMethod("/skein.v1.GraphService/New")
	if err := methodWithoutRight.checkRole(identity{caller: access.Anyone()}); err == nil {
		t.Error("a method without a right admits a caller who may do anything, want an error")
	}
}

// TestTokensAreInNoLogOrAnswer sends tokens in all kinds of wrong headers, to every method, and
// writes one into the token file. Neither the log nor an error contains the end of any of them.
func TestTokensAreInNoLogOrAnswer(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	validJWT := g.jwts.Token(nil)
	signature := strings.Split(validJWT, ".")[2]
	foreignJWT := accesstest.NewJWTs(t, "one").Token(nil)
	password := "Zm9vOmJhcg=="
	secrets := []string{validJWT, signature, foreignJWT, password}
	for _, token := range g.tokens {
		secrets = append(secrets, token)
	}
	headers := []string{"Basic " + password, "Bearer " + validJWT + ", Bearer " + foreignJWT, validJWT}
	for _, s := range secrets {
		headers = append(headers, "Bearer "+s, "Bearer "+s[:len(s)-5], "bearer  "+s)
	}

	// Send each header to every unary method and to some pages.
	var answers bytes.Buffer
	for procedure, m := range apiMethods() {
		if m.IsStreamingServer() {
			continue
		}
		for _, format := range callFormats {
			body, err := format.marshal(newRequestAbout(t, m, "cid"))
			if err != nil {
				t.Fatal(err)
			}
			for _, header := range headers {
				status, _, answer := g.post(procedure, format.contentType, bytes.NewReader(body), "Authorization", header)
				if status != http.StatusOK {
					answers.Write(answer)
				}
			}
		}
	}
	for _, header := range headers {
		for _, path := range []string{"/metrics", "/readyz", "/nothing"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", header)
			_, _, answer := g.do(req)
			answers.Write(answer)
		}
	}

	// Write a token into the token file where its hash should be, and wait until the server has
	// logged that it cannot load the file.
	if err := os.WriteFile(g.file, []byte("web read "+validJWT), 0o600); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(g.log.String(), "not loaded again") {
		_, _ = g.callForError(t, connectv1.GraphServiceListBlockedProcedure, "application/json", []byte("{}"), validJWT)
	}

	// The log is complete once the server has stopped.
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"the log": g.log.String(), "the answers": answers.String()} {
		if len(text) < 1000 {
			t.Errorf("%s has only %d bytes, want enough to search in: %q", name, len(text), text)
		}
		for _, s := range secrets {
			end := s[max(0, len(s)-20):]
			if i := strings.Index(text, end); i >= 0 {
				t.Errorf("%s contains the end of a secret after %q", name, text[max(0, i-200):i])
			}
		}
	}
}

// TestClientCertificates checks that a client certificate identifies a caller, who has the role
// that the token file gives the certificate, and that a client without one cannot connect.
func TestClientCertificates(t *testing.T) {
	g := guardFiles(t)
	g.lines["by certificate"] = "web read cert:web"
	g.writeTokens(t)
	clientCertificate, _, _ := g.ca.Client(t.TempDir(), "web")
	g.world = newWorld(t, func(o *worldOptions) {
		g.options(t, o)
		cert, key := g.ca.Server(t.TempDir())
		var err error
		o.Certificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key, ClientCA: g.ca.File}, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.clientTLS.Certificates = []tls.Certificate{clientCertificate}
	})

	for _, format := range callFormats {
		t.Run(format.name, func(t *testing.T) {
			body, err := format.marshal(&skeinv1.ListBlockedRequest{UserId: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			code, reason := g.callForError(t, connectv1.GraphServiceListBlockedProcedure, format.contentType, body, "")
			if code != "" {
				t.Errorf("with the certificate: got %s %s, want an answer", code, reason)
			}

			// A token that is not valid is not ignored in favor of the certificate.
			code, reason = g.callForError(t, connectv1.GraphServiceListBlockedProcedure, format.contentType, body, "bad")
			if reason != "TOKEN_INVALID" {
				t.Errorf("with the certificate and a bad token: got %s %s, want TOKEN_INVALID", code, reason)
			}
		})
	}

	t.Run("stream", func(t *testing.T) {
		// The caller is known, but does not have the role of this stream.
		scan, err := g.graph.ScanFollowers(t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
			Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "bob"},
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer scan.Close()
		if scan.Receive() {
			t.Errorf("got %v, want an error", scan.Msg())
		}
		wantError(t, scan.Err(), connect.CodePermissionDenied, "ROLE_MISSING", "")
	})

	t.Run("no certificate", func(t *testing.T) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.ca.Pool, MinVersion: tls.VersionTLS12}}
		res, err := (&http.Client{Transport: transport}).Get(g.url + "/healthz")
		if err == nil {
			res.Body.Close()
			t.Errorf("got status %d, want no connection", res.StatusCode)
		}
	})
}

// TestAccessErrorsHaveNoDetailsOfTheServer checks the full text of an error of authentication: it
// says what is wrong with the token, and not what the server would accept.
func TestAccessErrorsHaveNoDetailsOfTheServer(t *testing.T) {
	g := newGuarded(t)
	status, _, body := g.post(connectv1.GraphServiceListBlockedProcedure, "application/json", strings.NewReader(`{"userId":"ann"}`),
		"Authorization", "Bearer "+g.jwts.Token(map[string]any{"aud": "other"}))
	if status != http.StatusUnauthorized {
		t.Errorf("got status %d, want 401", status)
	}
	const want = "the token is not valid: it is meant for another service"
	if got := parseError(t, body).Message; got != want {
		t.Errorf("got the message %q, want %q", got, want)
	}
}

// TestNoRequestNamesAPath checks that no request has a field with which a caller could name a file
// on the machine of the service, or another machine.
func TestNoRequestNamesAPath(t *testing.T) {
	wordsForPlaces := []string{"path", "file", "dir", "directory", "folder", "target", "bucket", "url", "uri", "address", "host"}
	checked := 0
	var checkFields func(m protoreflect.MessageDescriptor, visited map[protoreflect.FullName]bool)
	checkFields = func(m protoreflect.MessageDescriptor, visited map[protoreflect.FullName]bool) {
		if visited[m.FullName()] {
			return
		}
		visited[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			checked++
			words := strings.Split(string(f.Name()), "_")
			if slices.Contains(wordsForPlaces, words[len(words)-1]) && f.Kind() == protoreflect.StringKind {
				t.Errorf("%s has a name as of a path or an address, want no such field", f.FullName())
			}
			if f.Message() != nil {
				checkFields(f.Message(), visited)
			}
		}
	}
	for _, service := range services() {
		for i := range service.Methods().Len() {
			checkFields(service.Methods().Get(i).Input(), map[protoreflect.FullName]bool{})
		}
	}
	if checked < 200 {
		t.Errorf("checked only %d fields, want at least 200", checked)
	}
}
