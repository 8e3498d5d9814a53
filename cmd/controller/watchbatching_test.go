package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestBatches: all that is sent is read, in its order; there is a pause only where nothing
// more was there.
func TestBatches(t *testing.T) {
	const size = 64
	for name, c := range map[string]struct {
		chunks []int // what is there at once
		pauses int
	}{
		"one event":             {[]int{10}, 1}, // before the end
		"one event at a time":   {[]int{10, 10, 10}, 3},
		"a list":                {[]int{3 * size}, 0},
		"an event after a list": {[]int{3 * size, 10}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []byte
			var parts []io.Reader
			for i, n := range c.chunks {
				part := bytes.Repeat([]byte{byte('a' + i)}, n)
				sent, parts = append(sent, part...), append(parts, bytes.NewReader(part))
			}
			pauses := 0
			body := batched(io.NopCloser(io.MultiReader(parts...)), size, func(d time.Duration) {
				if pauses++; d != gatherFor {
					t.Errorf("a pause of %s, want %s", d, gatherFor)
				}
			})
			// A frame is read bit by bit, which must cost no pauses.
			got, err := io.ReadAll(iotest.OneByteReader(body))
			if err != nil || !bytes.Equal(sent, got) {
				t.Errorf("read %q, %v; want %q", got, err, sent)
			}
			if pauses != c.pauses {
				t.Errorf("%d pauses, want %d", pauses, c.pauses)
			}
		})
	}
}

// TestGathered: only watches are read like this: a write waits for its answer.
func TestGathered(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 10))
	}))
	defer server.Close()
	client := &http.Client{Transport: gathered(http.DefaultTransport)}
	for query, want := range map[string]bool{"?watch=true": true, "": false, "?watch=false": false} {
		response, err := client.Get(server.URL + "/" + query)
		must.Succeed(t, err)
		if _, got := response.Body.(batches); got != want {
			t.Errorf("%q is read in batches: %t, want %t", query, got, want)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}
