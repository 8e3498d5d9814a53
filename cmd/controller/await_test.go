package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestAwaitAPIServer(t *testing.T) {
	var asked atomic.Int32
	answer := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 {
			answer = http.StatusOK
		}
		w.WriteHeader(answer)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := awaitAPIServer(ctx, &rest.Config{Host: server.URL}); err != nil || asked.Load() != 2 {
		t.Errorf("of an API server that answers the second time: %v after %d times, want success after 2", err, asked.Load())
	}
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer stranger.Close()
	if err := awaitAPIServer(ctx, &rest.Config{Host: stranger.URL}); err == nil || !strings.Contains(err.Error(), "asking the API server") {
		t.Errorf("of an API server that knows nobody: %v, want an error", err)
	}
	gone, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if err := awaitAPIServer(gone, &rest.Config{Host: "127.0.0.1:1"}); err == nil {
		t.Error("of an API server that is not there: success")
	}
}
