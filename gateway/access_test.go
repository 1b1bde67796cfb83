package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
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

// told is the error of an answer: its code and reason. Both are empty for a good one.
func (g *guarded) told(t testing.TB, procedure, contentType string, body []byte, token string) (code, reason string) {
	t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	status, header, answer := g.post(procedure, contentType, bytes.NewReader(body), headers...)
	if status == http.StatusOK {
		return "", ""
	}
	if (status == http.StatusUnauthorized) != (header.Get("WWW-Authenticate") == "Bearer") {
		t.Errorf("%s: %d with %v", procedure, status, header)
	}
	e := parseError(t, answer)
	return e.Code, e.reason()
}

// apiMethods are all methods of the API, with those of health checks.
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

// Every method has a right, and docs/access.md shows the same table.
func TestEveryMethodHasItsRight(t *testing.T) {
	methods := apiMethods()
	for procedure := range methods {
		r, ok := rights[procedure]
		if !ok || r.open == (r.roles != 0) {
			t.Errorf("%s: nobody has said who may call it", procedure)
		}
		if r.open != strings.HasPrefix(procedure, "/grpc.health.v1.") {
			t.Errorf("%s: open %v", procedure, r.open)
		}
	}
	for procedure := range rights {
		if methods[procedure] == nil {
			t.Errorf("there is no method %s", procedure)
		}
	}
	text, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]string{}, map[string]string{}
	for procedure, r := range rights {
		roles, bound := "`"+strings.ReplaceAll(r.roles.String(), ",", "` or `")+"`", r.bound.text
		if r.open {
			roles, bound = "none: open", "everything"
		}
		if bound == "" {
			bound = "nothing"
		}
		want[strings.TrimPrefix(strings.TrimPrefix(procedure, "/skein.v1."), "/")] = roles + " | " + bound
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if strings.HasPrefix(line, "| `") && len(cells) == 3 && strings.Contains(cells[0], "/") {
			for name := range strings.SplitSeq(strings.ReplaceAll(cells[0], "`", ""), ", ") {
				got[name] = cells[1] + " | " + cells[2]
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/access.md (-want +got)\n%s", diff)
	}
}

// requestFor makes a request of which every id of a user is a user.
func requestFor(t testing.TB, m protoreflect.MethodDescriptor, user string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	msg := kind.New()
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
		req.Events = []*skeinv1.Event{follow("ann", "zoe"), follow(user, "zoe")}
		if user == "ann" {
			req.Events = req.Events[:1]
		}
	}
	return msg.Interface()
}

// ways are those into the server: by the short way for plain calls, and by Connect's handler.
var ways = []struct {
	name, contentType string
	marshal           func(proto.Message) ([]byte, error)
}{
	{"plain", "application/proto", proto.Marshal},
	{"json", "application/json", protojson.Marshal},
}

// For every method, by the loop and by net/http: a caller without a token or with another role is
// refused, and one with the role is admitted.
func TestEveryMethodDemandsItsRole(t *testing.T) {
	g := newGuarded(t)
	for procedure, m := range apiMethods() {
		r := rights[procedure]
		for _, way := range ways {
			contentType := way.contentType
			if m.IsStreamingServer() {
				continue // by TestStreamsDemandTheirRole
			}
			body, err := way.marshal(requestFor(t, m, "cid"))
			if err != nil {
				t.Fatal(err)
			}
			for name, token := range map[string]string{
				"": "", "publisher": g.tokens["publisher"], "reader": g.tokens["reader"], "offline": g.tokens["offline"],
				"admin": g.tokens["admin"], "old": g.tokens["old"], "nobody's": "skein_nobody", "jwt": g.jwts.Token(nil),
				"jwt without roles": g.jwts.Token(map[string]any{"skein_roles": nil}),
			} {
				roles, wantReason := access.Roles(0), ""
				switch name {
				case "":
					wantReason = "TOKEN_MISSING"
				case "old":
					wantReason = "TOKEN_EXPIRED"
				case "nobody's":
					wantReason = "TOKEN_INVALID"
				case "reader", "jwt":
					roles = access.Read
				case "publisher":
					roles = access.Publish
				case "offline", "admin":
					roles, _ = access.ParseRoles(name)
				}
				if wantReason == "" && !roles.Any(r.roles) {
					wantReason = "ROLE_MISSING"
				}
				if r.open {
					wantReason = ""
				}
				code, reason := g.told(t, procedure, contentType, body, token)
				refused := code == "unauthenticated" || code == "permission_denied"
				if refused != (wantReason != "") || refused && reason != wantReason {
					t.Errorf("%s, %s, %q: %s %s, want %s", procedure, way.name, name, code, reason, wantReason)
				}
			}
		}
	}
}

// A stream demands the same role in every protocol.
func TestStreamsDemandTheirRole(t *testing.T) {
	g := newGuarded(t)
	g.as(g.tokens["all"]).publish(follow("ann", "bob"))
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "json": {connect.WithProtoJSON()},
	} {
		for _, c := range []struct {
			token  string
			code   connect.Code
			reason string
		}{
			{"", connect.CodeUnauthenticated, "TOKEN_MISSING"},
			{g.tokens["old"], connect.CodeUnauthenticated, "TOKEN_EXPIRED"},
			{g.tokens["reader"], connect.CodePermissionDenied, "ROLE_MISSING"},
			{g.tokens["admin"], connect.CodePermissionDenied, "ROLE_MISSING"},
			{g.tokens["ann"], connect.CodePermissionDenied, "OTHER_USER"},
			{g.tokens["offline"], 0, ""},
		} {
			w := g.as(c.token, options...)
			scan, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
				Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "bob"},
			}))
			if err != nil {
				t.Fatal(err)
			}
			got := scan.Receive()
			if got != (c.code == 0) {
				t.Errorf("%s %q: received %v, %v", name, c.reason, got, scan.Err())
			}
			if c.code != 0 {
				wantError(t, scan.Err(), c.code, c.reason, "")
			}
			_ = scan.Close()
			if _, err := w.graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "cid"})); err == nil &&
				c.token != g.tokens["reader"] {
				t.Errorf("%s %q: a unary call is let pass", name, c.reason)
			}
		}
	}
}

// A stream ends when its token expires or is removed.
func TestStreamEndsWithItsToken(t *testing.T) {
	g := newGuarded(t)
	g.server.reauthPeriod = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	watch, err := g.as(g.tokens["offline"]).events.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	g.writeTokens(t, "offline")
	for watch.Receive() {
	}
	wantError(t, watch.Err(), connect.CodeUnauthenticated, "TOKEN_INVALID", "")
}

// Health needs no token, so a stream of health does not depend on the one that its caller sends.
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
			t.Errorf("%s: authenticates its caller again: got %v, expected %v", path, got, want)
		}
	}
}

// For every method, by the loop and by net/http: a caller who is bound to a user may ask about that
// user, and not about another.
func TestBoundCallerReadsOnlyItsUser(t *testing.T) {
	g := newGuarded(t)
	for procedure, m := range apiMethods() {
		r := rights[procedure]
		for _, way := range ways {
			if m.IsStreamingServer() {
				continue
			}
			for _, user := range []string{"ann", "bob"} {
				body, err := way.marshal(requestFor(t, m, user))
				if err != nil {
					t.Fatal(err)
				}
				want := ""
				switch {
				case r.open || strings.HasPrefix(r.bound.text, "everything") || r.bound.text == refuseExcluders().text:
				case r.bound.text == "", user != "ann":
					want = "OTHER_USER"
				}
				for name, token := range map[string]string{
					"static": g.tokens["ann"],
					"jwt":    g.jwts.Token(map[string]any{"skein_user": "ann", "skein_roles": "publish read offline admin"}),
				} {
					code, reason := g.told(t, procedure, way.contentType, body, token)
					if reason != want && (want != "" || code != "invalid_argument" && code != "not_found" && code != "unimplemented" && code != "") {
						t.Errorf("%s, %s, %s, about %s: %s %s, want %q", procedure, way.name, name, user, code, reason, want)
					}
				}
			}
		}
	}
}

// What a caller who is bound to ann may publish.
func TestBoundCallerPublishesOnlyItsEvents(t *testing.T) {
	g := newGuarded(t)
	backfill := follow("ann", "bob")
	backfill.Source, backfill.Offset, backfill.OccurredAt = "x", 1<<63, timestamppb.New(time.Unix(1e9, 0))
	for name, c := range map[string]struct {
		ev   *skeinv1.Event
		want string
	}{
		"her follow":               {follow("ann", "bob"), ""},
		"her board":                {createBoard("ann", "bread", "Bread"), ""},
		"her pin":                  {pinned("ann", "bread", "p"), ""},
		"her block":                {block("ann", "bob"), ""},
		"her play":                 {played("ann", "i"), ""},
		"a follow of hers":         {follow("bob", "ann"), "OTHER_USER"},
		"a board of another":       {createBoard("bob", "bread", "Bread"), "OTHER_USER"},
		"a pin of another":         {unpinned("bob", "p"), "OTHER_USER"},
		"a play of another":        {played("bob", "i"), "OTHER_USER"},
		"history, which is nobody": {backfill, "OTHER_USER"},
		"a score":                  {&skeinv1.Event{Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: "i"}}}, "OTHER_USER"},
		"the end of imports":       {&skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{}}}, "OTHER_USER"},
		"the end of another": {&skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{
			UserDeleted: &skeinv1.UserDeleted{UserId: "bob"},
		}}, "OTHER_USER"},
		"what is malformed":          {follow("ann", "ann"), "SELF_RELATION"},
		"what is malformed, another": {follow("bob", "bob"), "SELF_RELATION"},
	} {
		for _, way := range ways {
			for _, partial := range []bool{false, true} {
				body, err := way.marshal(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "dan"), c.ev}, AllowPartial: partial})
				if err != nil {
					t.Fatal(err)
				}
				_, reason := g.told(t, connectv1.EventServicePublishProcedure, way.contentType, body, g.tokens["ann"])
				if want := c.want; reason != want && (want != "SELF_RELATION" || !partial || reason != "") {
					t.Errorf("%s, %s: %q, want %q", name, way.name, reason, want)
				}
			}
		}
	}
	_, reason := g.told(t, connectv1.GraphServiceListBoardFollowersProcedure, "application/json",
		[]byte(`{"board":{"ownerId":"ann"},"kind":"BOARD_FOLLOWER_KIND_EXCLUDERS"}`), g.tokens["ann"])
	if reason != "OTHER_USER" {
		t.Errorf("who excludes a board: %q", reason)
	}
	// Nothing that was refused is in the log.
	w := g.as(g.tokens["reader"])
	counts := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "ann"})
	if counts.GetTotalSize() != 0 {
		t.Errorf("ann has %d followers", counts.GetTotalSize())
	}
}

// Pages beside the API.
func TestPagesDemandRoles(t *testing.T) {
	g := newGuarded(t)
	for status := 0; status != http.StatusOK && t.Context().Err() == nil; { // however busy the machine, all stores catch up
		status, _, _ = g.as("").get("/readyz")
	}
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/metrics", "", 401},
		{"/metrics", g.tokens["old"], 401},
		{"/metrics", g.tokens["publisher"], 403},
		{"/metrics", g.tokens["ann"], 403},
		{"/metrics", g.tokens["reader"], 200},
		{"/metrics", g.tokens["admin"], 200},
		{"/nothing", "", 404},
	} {
		w := g.as(c.token)
		if status, _, body := w.get(c.path); status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.path, status, c.status, body)
		}
	}
	for token, want := range map[string]connect.Code{"": connect.CodeUnauthenticated, g.tokens["publisher"]: 0} {
		stream := grpcreflect.NewClient(g.as(token).http, g.url, connect.WithGRPC()).NewStream(t.Context())
		_, err := stream.ListServices()
		if (err == nil) != (want == 0) || err != nil && connect.CodeOf(err) != want {
			t.Errorf("reflection: %v, want %v", err, want)
		}
		_, _ = stream.Close()
	}
}

// A code path into the server that forgets to authenticate admits nobody.
func TestZeroIdentityIsRefused(t *testing.T) {
	g := newGuarded(t)
	u, ok := g.server.methods[connectv1.GraphServiceCheckFollowsProcedure].(*unaryMethod[
		skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest])
	if !ok {
		t.Fatal("CheckFollows is another kind of method")
	}
	_, err := u.answer(t.Context(), identityOf(context.Background()), &request.Received[skeinv1.CheckFollowsRequest, *skeinv1.CheckFollowsRequest]{}, &call.Info{})
	wantError(t, err, connect.CodePermissionDenied, "ROLE_MISSING", "")
	m := g.server.newMethod("/skein.v1.GraphService/New")
	if err := m.checkRole(identity{caller: access.Anyone()}); err == nil {
		t.Error("a method without a right is everybody's")
	}
}

// Neither a token nor a part of one is in the log or in an answer, whatever is done with the token.
func TestTokensAreInNoLogOrAnswer(t *testing.T) {
	g := newGuarded(t)
	var said bytes.Buffer
	good := g.jwts.Token(nil)
	secrets := []string{good, strings.Split(good, ".")[2], accesstest.NewJWTs(t, "one").Token(nil), "Zm9vOmJhcg=="}
	for _, token := range g.tokens {
		secrets = append(secrets, token)
	}
	headers := []string{"Basic Zm9vOmJhcg==", "Bearer " + secrets[0] + ", Bearer " + secrets[2], secrets[0]}
	for _, s := range secrets {
		headers = append(headers, "Bearer "+s, "Bearer "+s[:len(s)-5], "bearer  "+s)
	}
	for procedure, m := range apiMethods() {
		for _, way := range ways {
			body, err := way.marshal(requestFor(t, m, "cid"))
			if err != nil {
				t.Fatal(err)
			}
			if m.IsStreamingServer() {
				continue
			}
			for _, header := range headers {
				status, _, answer := g.post(procedure, way.contentType, bytes.NewReader(body), "Authorization", header)
				if status != http.StatusOK {
					said.Write(answer)
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
			said.Write(answer)
		}
	}
	if err := os.WriteFile(g.file, []byte("web read "+secrets[0]), 0o600); err != nil { // a token in place of its hash
		t.Fatal(err)
	}
	for !strings.Contains(g.log.String(), "not loaded again") {
		_, _ = g.told(t, connectv1.GraphServiceListBlockedProcedure, "application/json", []byte("{}"), secrets[0])
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"the log": g.log.String(), "the answers": said.String()} {
		if len(text) < 1000 {
			t.Errorf("%s: %q", name, text)
		}
		for _, s := range secrets {
			if i := strings.Index(text, s[max(0, len(s)-20):]); i >= 0 {
				t.Errorf("%s has a secret: %s", name, text[max(0, i-200):i])
			}
		}
	}
}

// A client certificate identifies a caller, but only over TLS.
func TestClientCertificates(t *testing.T) {
	g := guardFiles(t)
	g.lines["by certificate"] = "web read cert:web"
	g.writeTokens(t)
	pair, _, _ := g.ca.Client(t.TempDir(), "web")
	g.world = newWorld(t, func(o *worldOptions) {
		g.options(t, o)
		cert, key := g.ca.Server(t.TempDir())
		var err error
		o.Certificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key, ClientCA: g.ca.File}, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.clientTLS.Certificates = []tls.Certificate{pair}
	})
	for _, way := range ways {
		body, err := way.marshal(&skeinv1.ListBlockedRequest{UserId: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if code, reason := g.told(t, connectv1.GraphServiceListBlockedProcedure, way.contentType, body, ""); code != "" {
			t.Errorf("%s: %s %s", way.name, code, reason)
		}
		if _, reason := g.told(t, connectv1.GraphServiceScanFollowersProcedure, "application/connect+proto", nil, ""); reason == "TOKEN_MISSING" {
			t.Error(reason)
		}
		if code, reason := g.told(t, connectv1.GraphServiceListBlockedProcedure, way.contentType, body, "bad"); reason != "TOKEN_INVALID" {
			t.Errorf("%s: %s %s", way.name, code, reason)
		}
	}
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.ca.Pool, MinVersion: tls.VersionTLS12}}}
	if res, err := bare.Get(g.url + "/healthz"); err == nil {
		res.Body.Close()
		t.Error("let in without a certificate")
	}
}

// JSON errors have nothing of the inside.
func TestAccessErrorsHaveNoDetailsOfTheServer(t *testing.T) {
	g := newGuarded(t)
	status, _, body := g.post(connectv1.GraphServiceListBlockedProcedure, "application/json", strings.NewReader(`{"userId":"ann"}`),
		"Authorization", "Bearer "+g.jwts.Token(map[string]any{"aud": "other"}))
	var e struct{ Code, Message string }
	if err := json.Unmarshal(body, &e); err != nil || status != http.StatusUnauthorized || e.Message != "the token is not valid: it is meant for another service" {
		t.Errorf("%d %s, %v", status, body, err)
	}
}

// No request has a field with which a caller could name a file on the machine of the service, or
// another machine.
func TestNoRequestNamesAPath(t *testing.T) {
	fields := 0
	var look func(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool)
	look = func(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			fields++
			words := strings.Split(string(f.Name()), "_")
			places := []string{"path", "file", "dir", "directory", "folder", "target", "bucket", "url", "uri", "address", "host"}
			if slices.Contains(places, words[len(words)-1]) && f.Kind() == protoreflect.StringKind {
				t.Errorf("%s: is it a path or an address?", f.FullName())
			}
			if f.Message() != nil {
				look(f.Message(), seen)
			}
		}
	}
	for _, service := range services() {
		for i := range service.Methods().Len() {
			look(service.Methods().Get(i).Input(), map[protoreflect.FullName]bool{})
		}
	}
	if fields < 200 {
		t.Errorf("only %d fields", fields)
	}
}
