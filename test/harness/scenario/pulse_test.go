package scenario

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestPulse: the clock of gangs stands still while the API server does not answer, and only then.
func TestPulse(t *testing.T) {
	answers := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-answers:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(&plan{})
	stands := func() bool {
		r.Lock()
		defer r.Unlock()
		return len(r.uptime.down) > 0
	}
	go r.pulse(t.Context(), client)
	await.Until(t, "the clock to stand while there is no answer", stands)
	before := r.uptime.at(time.Now())
	time.Sleep(2 * pulseTimeout)
	if after := r.uptime.at(time.Now()); after != before {
		t.Errorf("the clock went on for %s without an answer", after-before)
	}
	close(answers)
	await.Until(t, "the clock to go on once there are answers", func() bool { return !stands() })
}
