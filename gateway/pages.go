package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/console"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
)

// mountPages mounts everything that is not a method of the API: gRPC reflection, health for load
// balancers, metrics and the console.
func (s *Server) mountPages(registry *prometheus.Registry) {
	names := []string{healthv1connect.HealthName}
	for _, service := range services() {
		names = append(names, string(service.FullName()))
	}
	reflector := grpcreflect.NewStaticReflector(names...)

	mux := http.NewServeMux()
	// Clients of gRPC reflection still use both versions of its protocol.
	for _, newHandler := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, h := newHandler(reflector)
		mux.Handle(path, s.requireRoles(access.AllRoles, s.limitPages(h)))
	}
	mux.Handle("GET /metrics", s.requireRoles(access.Read|access.Admin,
		s.limitPages(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))))
	if s.console != nil {
		mux.Handle("GET "+console.Path, s.console)
		mux.Handle("GET "+strings.TrimSuffix(console.Path, "/"), s.console)
	}
	mux.HandleFunc("GET /{$}", s.serveFrontPage)
	mux.HandleFunc("GET /healthz", s.serveHealthz)
	mux.HandleFunc("GET /readyz", s.serveReadyz)

	s.pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// For an unknown path, the mux would answer with a plain text instead of an error of the
		// API.
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &pageErrorWriter{ResponseWriter: w, s: s, r: r}
		}
		mux.ServeHTTP(w, r)
	})
}

// serveFrontPage tells a person who opens the address in a browser what the service offers, and
// redirects to the console if there is one.
func (s *Server) serveFrontPage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	status := http.StatusOK
	consoleLine := "not served here (skein serve --help: --no-console)"
	if s.console != nil {
		// The location is relative, because a proxy may have put the service below another path.
		h.Set("Location", strings.TrimPrefix(console.Path, "/"))
		status = http.StatusFound
		consoleLine = console.Path
	}
	w.WriteHeader(status)
	// An error means that the client has gone away.
	_, _ = fmt.Fprintf(w, `skein %s

console        %s
API            POST /skein.v1.SERVICE/METHOD, as /skein.v1.GraphService/CheckFollows
health         /healthz, /readyz
metrics        /metrics
documentation  README.md of https://github.com/skein-feed/skein
`, s.version, consoleLine)
}

// limitPages limits how many requests for such pages run at a time, so that scrapers cannot occupy
// all processors.
func (s *Server) limitPages(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.budgets.Pages.Take("", 1); f != nil {
			s.refuseCall(w, r, f)
			return
		}
		defer s.budgets.Pages.Release("", 1)
		h.ServeHTTP(w, r)
	})
}

// serveHealthz reports that the process answers, and names the problems that an operator must
// repair. The status is 200 even if there are problems: whatever restarts a process that does not
// answer must not restart this one, because a restart repairs neither a failed projection nor an
// archive.
func (s *Server) serveHealthz(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Status   string   `json:"status"`
		Version  string   `json:"version"`
		Problems []string `json:"problems,omitempty"`
	}{Status: "ok", Version: s.version}
	for _, projection := range s.views.All {
		if st := projection.Status(); st.State == store.Failed {
			answer.Problems = append(answer.Problems, "the projection "+projection.Name()+" has failed")
		}
	}
	if s.listProblems != nil {
		answer.Problems = append(answer.Problems, s.listProblems()...)
	}
	writeJSON(w, http.StatusOK, answer)
}

// serveReadyz reports whether a load balancer should send calls to this process, and the state of
// each projection. The status is 200 only if the process is ready.
func (s *Server) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	type projection struct {
		State        string `json:"state"`
		LagEnvelopes uint64 `json:"lag_envelopes"`
	}
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error,omitempty"`
		// UnservedPartitions is absent outside of a cluster, and while all partitions are served.
		UnservedPartitions int                   `json:"unserved_partitions,omitempty"`
		Projections        map[string]projection `json:"projections"`
	}{UnservedPartitions: s.countUnservedPartitions(), Projections: map[string]projection{}}

	for _, current := range s.views.All {
		st := s.views.StatusOf(current)
		answer.Projections[st.Name] = projection{st.State.String(), st.Behind}
	}
	heldError := s.heldError()

	code := http.StatusServiceUnavailable
	switch {
	case s.draining.Load():
		answer.Status = "stopping"
	case s.allFailed():
		answer.Status = "failed"
	case heldError != nil:
		answer.Status = "held"
		answer.Error = heldError.Error()
	case !s.isReady():
		answer.Status = "catching_up"
	case !s.cluster.isKnownToOthers():
		answer.Status = "joining"
	case !s.isAnswerable(answer.UnservedPartitions):
		answer.Status = "unserved"
	default:
		answer.Status = "ready"
		code = http.StatusOK
	}
	writeJSON(w, code, answer)
}

// isReady reports whether every projection has caught up with the log once since the start. Later
// lag does not count: metrics show it, and reads that need newer state demand it with at_least.
//
// A projection that has failed, or that is outdated and answers from where it stopped, does not
// delay readiness. A projection whose store this version cannot read does, until it is rebuilt,
// because processes of the previous version can still answer from theirs.
func (s *Server) isReady() bool {
	if s.caughtUp.Load() {
		return true
	}
	for _, projection := range s.views.All {
		if st := projection.Status(); st.State == store.Starting || st.State == store.CatchingUp || st.Unreadable {
			return false
		}
	}
	s.caughtUp.Store(true)
	return true
}

// heldError returns why a projection does not fold any further although it answers, or nil. Such a
// process should get no calls, because another process may have newer state.
func (s *Server) heldError() (err error) {
	for _, current := range s.views.All {
		if st := s.views.StatusOf(current); st.State == store.Held {
			err = st.Error
		}
	}
	return err
}

// allFailed reports whether no projection can answer.
func (s *Server) allFailed() bool {
	return !slices.ContainsFunc(s.views.All, canAnswer)
}

func writeJSON[T any](w http.ResponseWriter, code int, v T) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// An error means that the client has gone away.
	_, _ = w.Write(append(body, '\n'))
}
