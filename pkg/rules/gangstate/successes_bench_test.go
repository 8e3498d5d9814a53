package gangstate

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// BenchmarkSuccesses: what it costs that a member of a large gang succeeds, and that its object is deleted.
func BenchmarkSuccesses(b *testing.B) {
	for _, members := range []int{100, 5000} {
		b.Run(strconv.Itoa(members), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := newOpen(gangspec.Defaults{WaitTime: time.Minute}, Backoff{})
				pods := make([]*podT, members)
				for i := range pods {
					pods[i] = podOf("p-"+strconv.Itoa(i), of("x"), owned("job"), bindTo("n", time.Second))
					s.ObservePod(pods[i], start)
				}
				b.StartTimer()
				for _, pod := range pods[1:] {
					ended(time.Minute)(pod)
					s.ObservePod(pod, start)
				}
				for _, pod := range pods[1:] {
					s.ForgetSucceeded(pod, start)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*(members-1)), "ns/member")
		})
	}
}
