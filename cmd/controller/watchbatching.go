package main

import (
	"bufio"
	"io"
	"net/http"
	"time"
)

const (
	// gatherFor is how long the events of a watch gather before they are read. What follows from them is
	// written later anyway.
	gatherFor = 500 * time.Millisecond
	// gatherSize is how many bytes are read at once. Where there are more, they are read without a pause,
	// so that lists are not slowed down and the API server does not take the client for a slow one.
	gatherSize = 256 << 10
)

// gathered makes the answers to watches be read in batches. To read each event as it comes costs more
// than the event does: half a dozen goroutines hand it on, and have to be woken for it.
func gathered(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Get("watch") == "true" {
			response.Body = batched(response.Body, gatherSize, time.Sleep)
		}
		return response, err
	})
}

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// batches is a body that is read in batches.
type batches struct {
	*bufio.Reader
	io.Closer
}

func batched(body io.ReadCloser, size int, sleep func(time.Duration)) io.ReadCloser {
	return batches{bufio.NewReaderSize(&pausing{body: body, sleep: sleep}, size), body}
}

// pausing waits a while before it reads more, once it has read all there was.
type pausing struct {
	body    io.Reader
	sleep   func(time.Duration)
	drained bool
}

// Read implements io.Reader.
func (p *pausing) Read(into []byte) (int, error) {
	if p.drained {
		p.sleep(gatherFor)
	}
	n, err := p.body.Read(into)
	p.drained = n < len(into)
	return n, err
}
