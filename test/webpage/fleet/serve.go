package fleet

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/cmd/controller/page"
)

// The tokens that exist: of a user that may see the page, and of one that may not.
const (
	Viewer   = "viewer"
	Stranger = "stranger"
)

// shifted is a clock that is behind.
type shifted struct {
	clock.RealClock
	by time.Duration
}

// Now implements clock.PassiveClock.
func (s *shifted) Now() time.Time { return s.RealClock.Now().Add(-s.by) }

// Since implements clock.PassiveClock.
func (s *shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Page returns the page of a fleet, whose queues have been watched for an hour.
func (f *Fleet) Page(ctx context.Context) (http.Handler, error) {
	const samples, every = 360, 10 * time.Second
	c := &shifted{}
	p := page.New(f, c, nil)
	for i := range samples {
		c.by = time.Duration(samples-1-i) * every
		f.Load(i)
		if err := p.Sample(ctx); err != nil {
			return nil, err
		}
	}
	return p.Handler(logr.Discard(), byToken, mayList)
}

// mayList stands for the API server: nobody may list anything there.
func mayList(context.Context, user.Info, schema.GroupResource, string) (bool, error) {
	return false, nil
}

// byToken stands for the API server.
func byToken(_ logr.Logger, handler http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + Viewer:
			handler.ServeHTTP(w, r)
		case "Bearer " + Stranger:
			http.Error(w, "Authorization denied", http.StatusForbidden)
		default:
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		}
	}), nil
}
