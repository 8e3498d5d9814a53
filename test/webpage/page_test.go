// Package page_test measures the page of lockstep-controller with a large cluster. In a browser, folder browser tests
// it.
package webpage_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/cmd/controller/page"
	"github.com/lockstep-sh/lockstep/test/webpage/fleet"
)

const nodes, gangs = 1000, 500

// files are what a browser loads before the data.
var files = []string{"/", "/style.css", "/main.js", "/dom.js", "/topology.js", "/gangs.js", "/queues.js", "/holdings.js", "/icon.svg"}

// TestFirstLoad: all that a browser loads at first, with a cluster of 1,000 nodes and 500 gangs, comes within a second.
func TestFirstLoad(t *testing.T) {
	handler, err := fleet.New(nodes, gangs, time.Now()).Page(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	defer server.Close()
	begun, size := time.Now(), int64(0)
	for _, path := range append(files, "/overview", "/overview/history") {
		n, err := load(server, path)
		if err != nil {
			t.Fatalf("loading %s: %v", path, err)
		}
		size += n
	}
	took := time.Since(begun)
	t.Logf("%d files and the data, %d kB compressed: %v", len(files), size/1000, took)
	if took > time.Second {
		t.Errorf("the first load takes %v, want a second at most", took)
	}
}

// load returns how many bytes came.
func load(server *httptest.Server, path string) (int64, error) {
	request, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+fleet.Viewer)
	request.Header.Set("Accept-Encoding", "gzip") // as browsers say: what comes is counted as it is sent
	response, err := server.Client().Do(request)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return n, err
}

// BenchmarkContents: the cost of a request for data that finds none younger than a second, without the encoding.
func BenchmarkContents(b *testing.B) {
	f := fleet.New(nodes, gangs, time.Now())
	f.Load(0)
	for b.Loop() {
		objects, err := page.Read(b.Context(), f)
		if err != nil {
			b.Fatal(err)
		}
		page.ContentsOf(objects, nil)
	}
}
