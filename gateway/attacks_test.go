package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/access/accesstest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// attacker does to a server behind TLS and tokens what docs/attacks.md says that it stands.
type attacker struct {
	*guarded
	t *testing.T
	// impatientURL is a second server, which waits only a second for its clients.
	impatientURL string
	// secretPage is a page token of bob's feed.
	secretPage string
}

// says is what a server answers: the code and reason of its error, or "let pass".
func says(err error, t testing.TB) string {
	t.Helper()
	if err == nil {
		return "let pass"
	}
	d := detailsOf(t, err)
	return d.code.String() + " " + d.reason
}

// call makes a call with a token, by both ways into the server, which must say the same.
func (a *attacker) call(token, procedure string, req proto.Message) string {
	a.t.Helper()
	var answers []string
	for _, way := range ways {
		body, err := way.marshal(req)
		if err != nil {
			a.t.Fatal(err)
		}
		code, reason := a.told(a.t, procedure, way.contentType, body, token)
		answers = append(answers, strings.TrimSpace(code+" "+reason))
	}
	if answers[0] != answers[1] {
		a.t.Errorf("%s: %q", procedure, answers)
	}
	if answers[0] == "" {
		return "let pass"
	}
	return answers[0]
}

// blocked asks for a list that only its user may see.
func (a *attacker) blocked(token, user string) string {
	a.t.Helper()
	return a.call(token, connectv1.GraphServiceListBlockedProcedure, &skeinv1.ListBlockedRequest{UserId: user})
}

func (a *attacker) publishAs(token string, partial bool, evs ...*skeinv1.Event) string {
	a.t.Helper()
	return a.call(token, connectv1.EventServicePublishProcedure, &skeinv1.PublishRequest{Events: evs, AllowPartial: partial})
}

func (a *attacker) feed(token, reader, page string) string {
	a.t.Helper()
	return a.call(token, connectv1.FeedServiceReadFeedProcedure, &skeinv1.ReadFeedRequest{
		ReaderId: reader, PageSize: 1, Start: &skeinv1.ReadFeedRequest_PageToken{PageToken: page},
	})
}

// forge is a good JWT of which the header is another, and signed by what is given.
func (a *attacker) forge(header string, mac func(signed string) []byte) string {
	parts := strings.Split(a.jwts.Token(nil), ".")
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + parts[1]
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac(signed))
}

// send sends a request with some headers and returns the status, and the reason of an error.
func (a *attacker) send(procedure string, body io.Reader, headers ...string) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+procedure, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := a.http.Do(req)
	if err != nil {
		return "cut off"
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	var e jsonError
	if res.StatusCode == http.StatusOK {
		return "let pass"
	}
	if json.Unmarshal(text, &e) != nil {
		return fmt.Sprint("status ", res.StatusCode)
	}
	return strings.TrimSpace(e.Code + " " + e.reason())
}

// raw sends bytes, over TLS or not, waits for the server to close, and reports whether it answered.
func (a *attacker) raw(config *tls.Config, text string) string {
	a.t.Helper()
	addr := strings.TrimPrefix(a.url, "https://")
	conn, err := (&net.Dialer{}).DialContext(a.t.Context(), "tcp", addr)
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(a.t.Context()); err != nil {
			return "no handshake"
		}
		conn = secure
	}
	_, _ = io.WriteString(conn, text)
	answer, _ := io.ReadAll(conn)
	if status, ok := bytes.CutPrefix(answer, []byte("HTTP/1.")); ok {
		return "status " + string(status[2:5])
	}
	return "cut off"
}

// fallSilent sends bytes to the impatient server, and nothing after them. It tries again as long as
// the machine is too slow for the server, which then answers less than want.
func (a *attacker) fallSilent(config *tls.Config, text, want string) (got string) {
	a.t.Helper()
	impatient := *a.world
	impatient.url = a.impatientURL
	client := &attacker{guarded: &guarded{world: &impatient}, t: a.t}
	for deadline := time.Now().Add(patienceOfTests); time.Now().Before(deadline); {
		got = strings.Replace(client.raw(config, text), "status 504", "cut off", 1) // an answer may come before the end
		if got == want {
			break
		}
		a.t.Logf("%q, and then nothing: %s", text, got)
	}
	return got
}

func (a *attacker) http1() *tls.Config {
	return &tls.Config{RootCAs: a.ca.Pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func (a *attacker) scan(token string) string {
	a.t.Helper()
	scan, err := a.as(token).graph.ScanFollowers(a.t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "bob"},
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	defer scan.Close()
	for scan.Receive() {
	}
	return says(scan.Err(), a.t)
}

type attack struct {
	name string
	does func() string
	want string
}

const (
	noToken  = "unauthenticated TOKEN_MISSING"
	nobodys  = "unauthenticated TOKEN_INVALID"
	expired  = "unauthenticated TOKEN_EXPIRED"
	noRole   = "permission_denied ROLE_MISSING"
	notYours = "permission_denied OTHER_USER"
	noPage   = "invalid_argument INVALID_PAGE_TOKEN"
)

// byTokens are attacks with tokens that are not what they should be.
func (a *attacker) byTokens() []attack {
	blocked := func(token string) func() string { return func() string { return a.blocked(token, "ann") } }
	jwt := func(claims map[string]any) func() string { return blocked(a.jwts.Token(claims)) }
	hash := strings.Fields(a.lines["all"])[2]
	none := func(string) []byte { return nil }
	return []attack{
		{"no token", blocked(""), noToken},
		{"a guessed token", blocked(otherEnd(a.tokens["all"])), nobodys},
		{"the hash of a token, from the token file", blocked(strings.TrimPrefix(hash, "sha256:")), nobodys},
		{"a token in the URL", func() string {
			return a.send(connectv1.GraphServiceListBlockedProcedure+"?access_token="+a.tokens["all"], strings.NewReader("{}"))
		}, noToken},
		{"a token as password", func() string {
			return a.send(connectv1.GraphServiceListBlockedProcedure, strings.NewReader("{}"), "Authorization",
				"Basic "+base64.StdEncoding.EncodeToString([]byte("x:"+a.tokens["all"])))
		}, nobodys},
		{"two tokens, one of them good", func() string {
			return a.send(connectv1.GraphServiceListBlockedProcedure, strings.NewReader("{}"),
				"Authorization", "Bearer x", "Authorization", "Bearer "+a.tokens["all"])
		}, nobodys},
		{"an expired token", blocked(a.tokens["old"]), expired},
		{"an expired JWT", jwt(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), expired},
		{"a JWT that never expires", jwt(map[string]any{"exp": nil}), nobodys},
		{"a JWT that is not valid yet", jwt(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), nobodys},
		{"a JWT for another service", jwt(map[string]any{"aud": "other"}), nobodys},
		{"a JWT of another issuer", jwt(map[string]any{"iss": "https://evil.example"}), nobodys},
		{"a JWT with an empty user", jwt(map[string]any{"skein_user": ""}), nobodys},
		{"a JWT without roles", jwt(map[string]any{"skein_roles": nil}), noRole},
		{"a JWT signed by another key of the same id", blocked(accesstest.NewJWTs(a.t, "one").Token(nil)), nobodys},
		{"a JWT with `alg: none`", blocked(a.forge(`{"alg":"none","kid":"one"}`, none)), nobodys},
		{"a JWT with `alg: HS256`, signed with the public key", blocked(a.forge(`{"alg":"HS256","kid":"one"}`, func(signed string) []byte {
			public, err := a.jwts.Public().MarshalJSON()
			if err != nil {
				a.t.Fatal(err)
			}
			mac := hmac.New(sha256.New, public)
			mac.Write([]byte(signed))
			return mac.Sum(nil)
		})), nobodys},
		{"a JWT with other claims than were signed", func() string {
			parts, other := strings.Split(a.jwts.Token(nil), "."), strings.Split(a.jwts.Token(map[string]any{"skein_user": "bob"}), ".")
			return a.blocked(parts[0]+"."+other[1]+"."+parts[2], "bob")
		}, nobodys},
		{"metrics without a token", func() string {
			status, _, _ := a.get("/metrics")
			return fmt.Sprint("status ", status)
		}, "status 401"},
	}
}

// byRoles are attacks of callers who are known, and want more than is theirs.
func (a *attacker) byRoles() []attack {
	ann, bobs := a.tokens["ann"], follow("bob", "eve")
	history := follow("ann", "eve")
	history.Source, history.Offset, history.OccurredAt = "import", 1<<63, timestamppb.New(time.Unix(1e9, 0))
	replayed := follow("ann", "dan")
	replayed.EventId = "one"
	return []attack{
		{"to publish with the role `read`", func() string { return a.publishAs(a.tokens["reader"], false, bobs) }, noRole},
		{"to read with the role `publish`", func() string { return a.blocked(a.tokens["publisher"], "ann") }, noRole},
		{"to stream all followers with the role `read`", func() string { return a.scan(a.tokens["reader"]) }, noRole},
		{"to erase a user with the roles of everybody but `admin`", func() string {
			token := a.jwts.Token(map[string]any{"skein_roles": "publish read offline"})
			return a.call(token, connectv1.AdminServiceEraseUserProcedure, &skeinv1.EraseUserRequest{UserId: "bob"})
		}, noRole},
		{"to follow in the name of another user", func() string { return a.publishAs(ann, false, bobs) }, notYours},
		{"to follow in the name of another user among good events, with `allow_partial`", func() string {
			return a.publishAs(ann, true, follow("ann", "eve"), bobs)
		}, notYours},
		{"a backfill of an enormous offset, to keep an import out", func() string { return a.publishAs(ann, false, history) }, notYours},
		{"to end all imports forever", func() string {
			return a.publishAs(ann, false, &skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{}}})
		}, notYours},
		{"to read the feed of another user", func() string { return a.feed(ann, "bob", "") }, notYours},
		{"to read whom another user blocks", func() string { return a.blocked(ann, "bob") }, notYours},
		{"to count whom another user blocks", func() string {
			count := func(token string) uint32 {
				return ask(a.as(token), a.as(token).graph.BatchGetFollowCounts,
					&skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"bob"}}).GetUsers()[0].GetBlockedCount()
			}
			return fmt.Sprintf("0 of %d", count(a.tokens["all"])-count(ann))
		}, "0 of 1"},
		{"to ask what another user has played", func() string {
			return a.call(ann, connectv1.SeenServiceFilterSeenProcedure, &skeinv1.FilterSeenRequest{UserId: "bob", ItemIds: []string{"i"}})
		}, notYours},
		{"another user's page token, for the own feed", func() string { return a.feed(ann, "ann", a.secretPage) }, noPage},
		{"another user's page token, for that user's feed", func() string { return a.feed(ann, "bob", a.secretPage) }, notYours},
		{"a page token with one bit changed", func() string {
			b := []byte(a.secretPage)
			b[len(b)/2] ^= 1
			return a.feed(a.tokens["reader"], "bob", string(b))
		}, noPage},
		{"the same event id again", func() string {
			before := a.followers("dan")
			for range 2 {
				if got := a.publishAs(ann, false, replayed); got != "let pass" {
					return got
				}
			}
			return fmt.Sprint("let pass, ", a.followers("dan")-before, " fact")
		}, "let pass, 1 fact"},
		{"an event id that another user will use, to have that event dropped", func() string {
			mine, theirs := follow("ann", "fay"), follow("gil", "fay")
			mine.EventId, theirs.EventId = "stolen", "stolen"
			before := a.followers("fay")
			if got := a.publishAs(ann, false, mine); got != "let pass" {
				return got
			}
			if got := a.publishAs(a.tokens["all"], false, theirs); got != "let pass" {
				return got
			}
			return fmt.Sprint("let pass, ", a.followers("fay")-before, " facts")
		}, "let pass, 2 facts"},
		{"to continue watching after the token was taken back", func() string {
			watch, err := a.as(a.tokens["offline"]).events.Watch(a.t.Context(), connect.NewRequest(&skeinv1.WatchRequest{}))
			if err != nil {
				a.t.Fatal(err)
			}
			defer watch.Close()
			a.writeTokens(a.t, "offline")
			for watch.Receive() {
			}
			return says(watch.Err(), a.t)
		}, nobodys},
		{"a token that was taken back", func() string { return a.scan(a.tokens["offline"]) }, nobodys},
	}
}

// followers is how many followers a user has, when all that was published is there.
func (a *attacker) followers(user string) uint32 {
	a.t.Helper()
	w := a.as(a.tokens["all"])
	at, err := w.events.Publish(a.t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{played("nobody", "i")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	return ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: user, AtLeast: at.Msg.GetPosition()}).GetTotalSize()
}

// byBytes are attacks that need no account.
func (a *attacker) byBytes() []attack {
	blocked, good := connectv1.GraphServiceListBlockedProcedure, "Bearer "+a.tokens["all"]
	old := a.http1()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	line := "POST " + blocked + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	return []attack{
		{"plain HTTP on the port of TLS", func() string { return a.raw(nil, line+"Content-Length: 2\r\n\r\n{}") }, "status 400"},
		{"TLS 1.1", func() string { return a.raw(old, "") }, "no handshake"},
		{"garbage in place of a handshake", func() string { return a.raw(nil, strings.Repeat("\xff\x00", 1000)) }, "cut off"},
		{"a handshake that does not continue", func() string { return a.fallSilent(nil, "\x16\x03\x01", "cut off") }, "cut off"},
		{"garbage over TLS", func() string { return a.raw(a.http1(), strings.Repeat("\xff\x00", 1000)+"\r\n\r\n") }, "status 400"},
		{"half a header, and then nothing", func() string { return a.fallSilent(a.http1(), line, "cut off") }, "cut off"},
		{"half a body, and then nothing, without a token", func() string {
			return a.fallSilent(a.http1(), line+"Content-Length: 100\r\n\r\n{", "status 401")
		}, "status 401"},
		{"half a body, and then nothing, with a token", func() string {
			return a.fallSilent(a.http1(), line+"Authorization: "+good+"\r\nContent-Length: 100\r\n\r\n{", "cut off")
		}, "cut off"},
		{"a header of 80 KiB", func() string {
			return a.raw(a.http1(), line+"X-Long: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
		}, "status 431"},
		{"a token of 20 KiB", func() string {
			return a.send(blocked, strings.NewReader("{}"), "Authorization", "Bearer "+strings.Repeat("x", 20<<10))
		}, nobodys},
		{"a body of 5 MiB, without a token", func() string {
			return a.send(blocked, io.LimitReader(blanks{}, 5<<20))
		}, noToken},
		{"a body of 5 MiB, with a token", func() string {
			return a.send(blocked, bytes.NewReader(make([]byte, 5<<20)), "Authorization", good)
		}, "invalid_argument TOO_LARGE"},
		{"64 MiB packed to 64 KiB, with a token", func() string {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(make([]byte, 64<<20))
			_ = z.Close()
			return a.send(blocked, &packed, "Authorization", good, "Content-Encoding", "gzip")
		}, "invalid_argument TOO_LARGE"},
		{"garbage for a request, with a token", func() string {
			return a.send(blocked, strings.NewReader("\x00{{{"), "Authorization", good)
		}, "invalid_argument INVALID_FIELD"},
		{"a message over TLS with two framings, and an event behind it", func() string {
			const body, event = `{"userId":"bob"}`, `{"events":[{"userFollowed":{"userId":"ann","targetUserId":"eve"}}]}`
			behind := strings.Replace(line, blocked, connectv1.EventServicePublishProcedure, 1)
			return a.raw(a.http1(), line+"Authorization: "+good+"\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks(body)+
				behind+"Authorization: "+good+fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(event), event))
		}, "status 200"},
		{"the path of a method with a percent-encoded letter, over HTTP/2", func() string {
			req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+strings.Replace(blocked, "List", "L%69st", 1),
				strings.NewReader(`{"userId":"bob"}`))
			if err != nil {
				a.t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", good)
			res, err := a.http.Do(req)
			if err != nil {
				a.t.Fatal(err)
			}
			defer res.Body.Close()
			return fmt.Sprintf("status %d over HTTP/%d", res.StatusCode, res.ProtoMajor)
		}, "status 404 over HTTP/2"},
		{"a page of another origin", func() string {
			req, err := http.NewRequestWithContext(a.t.Context(), http.MethodOptions, a.url+blocked, http.NoBody)
			if err != nil {
				a.t.Fatal(err)
			}
			req.Header.Set("Origin", "https://evil.example")
			req.Header.Set("Access-Control-Request-Method", "POST")
			_, header, _ := a.do(req)
			return "allowed " + fmt.Sprintf("%q", header.Get("Access-Control-Allow-Origin"))
		}, `allowed ""`},
	}
}

// blanks is a body without an end.
type blanks struct{}

// Read is part of io.Reader.
func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// attacksPage has a table of the attacks, between attacksTableHead and attacksTableEnd.
const (
	attacksPage      = "../docs/attacks.md"
	attacksTableHead = "| answer | attacks |\n|---|---|\n"
	attacksTableEnd  = "\n## Further attacks\n"
)

// updateAttacks makes TestAttacks write the table of docs/attacks.md.
var updateAttacks = flag.Bool("update-attacks", false, "write the table of docs/attacks.md")

// TestAttacks makes each attack, and compares the answers with the table of docs/attacks.md.
func TestAttacks(t *testing.T) {
	t.Parallel()
	a := &attacker{t: t, guarded: newGuarded(t, func(o *worldOptions) {
		o.Origins = []string{"https://app.example"}
	})}
	a.impatientURL = a.replica(func(o *worldOptions) {
		a.options(t, o)
		o.Limits.IOTimeout = time.Second
	}).url
	a.server.reauthPeriod = time.Millisecond
	w := a.as(a.tokens["all"])
	var evs []*skeinv1.Event
	for i := range 5 {
		evs = append(evs, follow("bob", "cid"), pinned("cid", "", fmt.Sprint("p", i)))
	}
	at := w.publish(append(evs, block("bob", "eve"))...)
	a.secretPage = ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "bob", PageSize: 1, AtLeast: at}).GetNextPageToken()
	if a.secretPage == "" || a.feed(a.tokens["reader"], "bob", a.secretPage) != "let pass" {
		t.Fatal("bob has no second page")
	}
	attacks := slices.Concat(a.byTokens(), a.byRoles(), a.byBytes())
	for _, attack := range attacks {
		if got := attack.does(); got != attack.want {
			t.Errorf("%s: %s, want %s", attack.name, got, attack.want)
		}
	}
	rows := attacksTable(attacks)

	page, err := os.ReadFile(attacksPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasHead := strings.Cut(string(page), attacksTableHead)
	documented, after, hasEnd := strings.Cut(rest, attacksTableEnd)
	if !hasHead || !hasEnd {
		t.Fatalf("expected %s to have the lines %q and %q", attacksPage, attacksTableHead, attacksTableEnd)
	}
	if *updateAttacks {
		documented = rows
		if err := os.WriteFile(attacksPage, []byte(before+attacksTableHead+documented+attacksTableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(rows, documented); diff != "" {
		t.Errorf("%s: go test ./gateway -run '^TestAttacks$' -update-attacks writes the table (-expected +found):\n%s", attacksPage, diff)
	}
	if w.followersOf("eve") != 0 {
		t.Error("something that was refused was published")
	}
}

func (w *world) followersOf(user string) uint32 {
	w.t.Helper()
	return ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: user}).GetTotalSize()
}

// attacksTable returns the rows of the table of docs/attacks.md: one for each answer, with all
// attacks that are answered so.
func attacksTable(attacks []attack) string {
	var answers []string
	names := map[string][]string{}
	for _, attack := range attacks {
		if names[attack.want] == nil {
			answers = append(answers, attack.want)
		}
		names[attack.want] = append(names[attack.want], attack.name)
	}

	var rows strings.Builder
	for _, answer := range answers {
		fmt.Fprintf(&rows, "| %s | %s |\n", shown(answer), strings.Join(names[answer], "<br>"))
	}
	return rows.String()
}

// shown is a result as the table has it: codes and reasons as code.
func shown(result string) string {
	words := strings.Fields(result)
	for i, word := range words {
		if strings.ToUpper(word) == word && len(word) > 4 || strings.Contains(word, "_") || word == "unauthenticated" {
			words[i] = "`" + word + "`"
		}
	}
	return strings.Join(words, " ")
}

// Only pages of an allowed origin may call.
func TestOnlyAllowedOriginsMayCall(t *testing.T) {
	ctx := context.Background()
	ask := func(w *world, method, origin string) http.Header {
		req, err := http.NewRequestWithContext(ctx, method, w.url+connectv1.GraphServiceListBlockedProcedure, strings.NewReader(`{"userId":"ann"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		if method == http.MethodOptions {
			req.Header.Set("Access-Control-Request-Method", "POST")
			req.Header.Set("Access-Control-Request-Headers", "authorization,connect-protocol-version,content-type")
		}
		_, header, _ := w.do(req)
		return header
	}
	off := newWorld(t)
	some := newWorld(t, func(o *worldOptions) { o.Origins = []string{"https://app.example", "http://localhost:3000"} })
	all := newWorld(t, func(o *worldOptions) { o.Origins = []string{"*"} })
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		for _, c := range []struct {
			w            *world
			origin, want string
		}{
			{off, "https://app.example", ""},
			{some, "https://app.example", "https://app.example"},
			{some, "http://localhost:3000", "http://localhost:3000"},
			{some, "http://localhost:3001", ""},
			{some, "https://app.example.evil", ""},
			{some, "null", ""},
			{some, "", ""},
			{all, "https://whatever.example", "*"},
		} {
			h := ask(c.w, method, c.origin)
			if got := h.Get("Access-Control-Allow-Origin"); got != c.want {
				t.Errorf("%s %s: %q, want %q", method, c.origin, got, c.want)
			}
			if h.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
			if allows := strings.Contains(h.Get("Access-Control-Allow-Headers"), "authorization"); allows != (c.want != "" && method == http.MethodOptions) {
				t.Errorf("%s %s: %v", method, c.origin, h)
			}
			if c.w != off && h.Get("Vary") == "" {
				t.Error("caches are not told that it varies")
			}
		}
	}
	for _, origin := range []string{"app.example", "https://app.example/", "https://", "", "https://a b", "https://*.example"} {
		if _, err := newCORS([]string{origin}); err == nil {
			t.Errorf("%q is taken for an origin", origin)
		}
	}
}
