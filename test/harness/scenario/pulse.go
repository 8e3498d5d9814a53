package scenario

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	// pulsePeriod is the pause between two requests that show whether the API server answers.
	pulsePeriod = 100 * time.Millisecond
	// pulseTimeout is how long an answer may take; from then on the API server counts as down until it is there.
	pulseTimeout = 250 * time.Millisecond
)

// pulse stops the clock of r while the API server does not answer: a burst of bindings takes as long as it takes then.
// It returns when ctx ends.
func (r *recorder) pulse(ctx context.Context, client kubernetes.Interface) {
	for ctx.Err() == nil {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			// Without a resourceVersion etcd answers, to which bindings go, too. A refused connection is an answer.
			_, _ = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		}()
		select {
		case <-answered:
		case <-time.After(pulseTimeout):
			r.setDown("API server (no answer)", true)
			<-answered
			r.setDown("API server (no answer)", false)
		}
		_ = await.Pause(ctx, pulsePeriod)
	}
}
