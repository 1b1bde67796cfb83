package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// sender sends requests by sockets of its own.
type sender struct {
	*world
	t *testing.T
	// loop is a request that the loop answers, rest one for net/http: what comes first on a
	// connection.
	loop, rest string
	// bodies are those of a check, by content type.
	bodies map[string]string
}

func newSender(t *testing.T) *sender {
	t.Helper()
	w := newWorld(t, func(o *worldOptions) { o.AllowedHosts = []string{"x"} })
	req := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	text, err := protojson.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{world: w, t: t, bodies: map[string]string{"application/proto": string(marshal(t, req)), "application/json": string(text)}}
	s.loop = http1test.Request(http1test.MethodPath, "", s.bodies["application/proto"])
	s.rest = strings.Replace(http1test.Request(http1test.MethodPath, "", s.bodies["application/json"]), "/proto", "/json", 1)
	return s
}

func (s *sender) dial() *net.TCPConn {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// ends sends data, and demands that the answers begin with good ones, as many as there are requests
// before, and end with one that closes the connection and has all of these parts.
func (s *sender) ends(name string, before int, data []string, want ...string) {
	s.t.Helper()
	parts := make([][]byte, 0, len(data))
	for _, part := range data {
		parts = append(parts, []byte(part))
	}
	said := http1test.ParseAnswers(http1test.Exchange(s.t, s.dial(), parts...))
	bad := len(said) != before+1
	for i, answer := range said {
		if i < before {
			bad = bad || !strings.HasPrefix(answer, "200 OK")
			continue
		}
		bad = bad || !strings.Contains(answer, "] true") // it closes
		for _, part := range want {
			bad = bad || !strings.Contains(answer, part)
		}
	}
	if bad {
		s.t.Errorf("%s: %.200q: %q, want %d answers, the last one with %q", name, data, said, before+1, want)
	}
}

// befores are the requests that may come on a connection first: none, or some that are answered by
// the loop and by net/http.
func (s *sender) befores() []string { return []string{"", s.loop, s.rest, s.loop + s.rest + s.loop} }

// chunked writes a request whose body comes in chunks.
func chunked(path, contentType, lines, chunks string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n%s", path, contentType, lines, chunks)
}

// chunks writes a body in one chunk.
func chunks(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// keeping are the ways to say what becomes of a connection.
var keeping = []string{"", "Connection: keep-alive\r\n", "Connection: close\r\n"}

// Malformed chunks are an error of the caller. Nothing after them is read.
func TestMalformedChunksAreTheCallersFault(t *testing.T) {
	s := newSender(t)
	for contentType, body := range s.bodies {
		whole := fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
		for _, malformed := range []string{
			"zz\r\n", "\r\n", "-1\r\n", "0x3\r\n", "fffffffffffffffff\r\n", "3 3\r\nabc\r\n", "3;" + strings.Repeat("x", 5000) + "\r\n",
			whole + "zz\r\n", whole + "3\nabc\r\n0\r\n\r\n", strings.TrimSuffix(whole, "\r\n") + "!!" + "0\r\n\r\n", whole + "0\r\nno trailer\r\n\r\n",
		} {
			for _, keep := range keeping {
				for _, before := range s.befores() {
					s.ends(contentType, strings.Count(before, "POST"), []string{before + chunked(http1test.MethodPath, contentType, keep, malformed) + s.rest + s.loop},
						"400 Bad Request", `"invalid_argument"`, "INVALID_FIELD", "the body is not framed as the header says")
				}
			}
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, s.bodies["application/json"])
	_ = z.Close()
	half := packed.String()[:packed.Len()/2]
	s.ends("packed", 0, []string{chunked(http1test.MethodPath, "application/json", "Content-Encoding: gzip\r\n", fmt.Sprintf("%x\r\n%s!!", len(half), half)) + s.loop},
		"400 Bad Request", `"invalid_argument"`, "malformed chunked encoding")
	s.ends("a stream", 0, []string{chunked(connectv1.EventServiceWatchProcedure, "application/connect+json", "", "5\r\n\x00\x00\x00\x00\x02!!") + s.loop},
		"200 OK", `"invalid_argument"`, "malformed chunked encoding")
}

// A body that ends too early is an error of the caller, chunked or not.
func TestTruncatedBodyIsTheCallersFault(t *testing.T) {
	s := newSender(t)
	for contentType := range s.bodies {
		for _, request := range []string{
			chunked(http1test.MethodPath, contentType, "", "5\r\nab"), chunked(http1test.MethodPath, contentType, "", "5"),
			strings.Replace(http1test.Request(http1test.MethodPath, "", "abcde")[:len(http1test.Request(http1test.MethodPath, "", "abcde"))-1], "application/proto", contentType, 1),
		} {
			for _, before := range s.befores() {
				said := http1test.ParseAnswers(http1test.ExchangeTCP(t, s.url, before+request))
				if len(said) == 0 || !strings.HasPrefix(said[len(said)-1], "400 Bad Request") || !strings.Contains(said[len(said)-1], "unexpected EOF") {
					t.Errorf("%q: %q", before+request, said)
				}
			}
		}
	}
}

// A message with two framings closes its connection after the answer, whichever messages came
// before. Nothing after it is read.
func TestTwoFramingsCloseTheConnection(t *testing.T) {
	s := newSender(t)
	behind := http1test.Request(connectv1.EventServicePublishProcedure, "", string(marshal(t, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("eve", "bob")}}))) + http1test.LastRequest
	for contentType, body := range s.bodies {
		for _, length := range []string{
			fmt.Sprint("Content-Length: ", len(body)), "Content-Length: 0", "content-length:3", "CONTENT-LENGTH: \t99 ", "Content-Length: 3\r\nContent-Length: 3",
		} {
			for _, keep := range keeping {
				for _, before := range s.befores() {
					first := chunked(http1test.MethodPath, contentType, keep+length+"\r\n", chunks(body))
					second := strings.Replace(chunked(http1test.MethodPath, contentType, keep, chunks(body)), ": chunked\r\n", ": chunked\r\n"+length+"\r\n", 1)
					for _, request := range []string{first, second} {
						s.ends(contentType, strings.Count(before, "POST"), []string{before + request + behind}, "200 OK")
					}
				}
			}
		}
	}
	both := "Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
	for request, want := range map[string]string{
		"POST " + http1test.MethodPath + " HTTP/1.0\r\nContent-Type: application/json\r\n" + strings.Replace(both, ": 3", ": 2", 1) + "{}": "400 Bad Request",
		"GET /healthz HTTP/1.0\r\n" + both + "abc":                                                         "200 OK",
		"GET /healthz HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n": "200 OK",
		"GET /healthz HTTP/1.1\r\n" + both + chunks("abc"):                                                 "200 OK",
		"POST /nothing HTTP/1.1\r\n" + both + chunks("abc"):                                                "404 Not Found",
		"OPTIONS * HTTP/1.1\r\n" + both + chunks("abc"):                                                    "400 Bad Request",
	} {
		s.ends("elsewhere", 0, []string{request + behind}, want)
	}
	if s.followersOf("bob") != 0 {
		t.Error("what came behind was read")
	}
}

// A chunked message without a length keeps its connection open, also between messages with a
// length.
func TestChunksKeepTheConnection(t *testing.T) {
	s := newSender(t)
	conn := s.dial()
	defer conn.Close()
	r := bufio.NewReader(conn)
	for i, request := range []string{
		s.loop, chunked(http1test.MethodPath, "application/proto", "", chunks(s.bodies["application/proto"])), s.rest, s.loop,
		chunked(http1test.MethodPath, "application/json", "X-Content-Length: 3\r\nContent-Lengths: 3\r\n", chunks(s.bodies["application/json"])),
		chunked(http1test.MethodPath, "application/json", "", "5\r\nhello\r\n0\r\n\r\n"), s.rest,
		chunked(http1test.MethodPath, "application/proto", "", chunks(s.bodies["application/proto"])),
	} {
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if res.Body.Close(); err != nil || res.Close {
			t.Errorf("request %d: closes: %v, %v", i, res.Close, err)
		}
	}
}

// A path is that of a method or page only in one spelling, because a proxy that forbids the path
// compares characters.
func TestEncodedPathsAreRefused(t *testing.T) {
	s := newSender(t)
	watch, err := proto.Marshal(&skeinv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/skein.v1.GraphService/Check%46ollows", "/%73kein.v1.GraphService/CheckFollows", "/skein%2Ev1.GraphService/CheckFollows",
		"/skein.v1.GraphService%2fCheckFollows", "/%2fskein.v1.GraphService/CheckFollows", "/skein.v1.GraphService/CheckFollow%73?x=y",
		"http://x/skein.v1.GraphService/Check%46ollows", "/skein.v1.EventService/W%61tch", "/skein.v1.AdminService/%45raseUser",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInf%6F", "/grpc.health.v1.Health/%43heck", "/metric%73", "/health%7A",
	} {
		for contentType, body := range map[string]string{
			"application/proto": s.bodies["application/proto"], "application/json": s.bodies["application/json"], "application/grpc-web": string(watch),
		} {
			for _, before := range s.befores() {
				for _, keep := range keeping[:2] {
					request := strings.Replace(http1test.Request(path, keep, body), "application/proto", contentType, 1)
					if strings.Contains(path, "metric") || strings.Contains(path, "health%") {
						request = strings.Replace(request, "POST", "GET", 1)
					}
					said := http1test.ParseAnswers(http1test.Exchange(t, s.dial(), []byte(before+request+s.loop+http1test.LastRequest)))
					n := strings.Count(before, "POST")
					if len(said) != n+3 || !strings.HasPrefix(said[n], "404 Not Found") || !strings.HasPrefix(said[n+1], "200 OK") {
						t.Errorf("%s: %q", path, said)
					}
				}
			}
		}
	}
}
