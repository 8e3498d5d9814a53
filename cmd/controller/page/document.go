package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// reuse is how long data are served before they are read anew.
	reuse = time.Second
	// patience is how long reading may take. The caches answer at once when they are filled.
	patience = 10 * time.Second
)

// encoded is a value as it is served.
type encoded struct {
	value         any
	plain, zipped []byte
	etag          string
}

func encode(value any) (*encoded, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", value, err)
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestSpeed) // it fails for another level only, and a buffer takes all
	_, _ = w.Write(plain)
	_ = w.Close()
	// Weak, since it is the same for both forms.
	return &encoded{value: value, plain: plain, zipped: zipped.Bytes(),
		etag: fmt.Sprintf(`W/"%x"`, sha256.Sum256(plain))}, nil
}

// document serves a value as JSON. However many requests come, it is made once in [reuse].
type document struct {
	clock clock.PassiveClock
	read  func(context.Context) (any, error)

	mu     sync.Mutex
	made   time.Time
	latest *encoded
	err    error
}

// get returns the value, which is made anew where it is due. A failure to make it is kept as long as a value.
func (d *document) get(ctx context.Context) (*encoded, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.made.IsZero() && d.clock.Since(d.made) < reuse {
		return d.latest, d.err
	}
	// Other callers wait for it, even if the one that asked first goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var value any
	if value, d.err = d.read(ctx); d.err == nil {
		d.latest, d.err = encode(value)
	}
	d.made = d.clock.Now()
	return d.latest, d.err
}

// ServeHTTP implements http.Handler.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := d.get(r.Context())
	serve(w, r, e, err)
}

// serve answers a request with a value, or with the error that kept it from being read.
func serve(w http.ResponseWriter, r *http.Request, e *encoded, err error) {
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Failed to read what the page shows", "path", r.URL.Path)
		http.Error(w, "what is shown could not be read; the log of lockstep-controller says why",
			http.StatusServiceUnavailable)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Encoding, Authorization")
	header.Set("ETag", e.etag)
	body := e.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = e.zipped
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body)) // answers callers that have it already, and HEAD
}
