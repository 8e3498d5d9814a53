package page

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
)

// The paths of the data. They are none of those below /api and /apis, which every cluster lets every user get.
const (
	overviewPath = "/overview"
	historyPath  = "/overview/history"
	minePath     = "/overview/mine"
)

//go:embed assets
var assets embed.FS

// policy lets the page load nothing but its own files, and no page frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page is what is shown, and what is remembered for it.
type Page struct {
	reader client.Reader
	clock  clock.WithTicker
	counts *clusterdevices.Counts

	mu      sync.Mutex
	history history
}

// New returns a page of what a reader has, which is asked once a second at most. deviceClasses are those of
// FairShareArgs.
func New(reader client.Reader, c clock.WithTicker, deviceClasses map[string]v1.ResourceName) *Page {
	return &Page{reader: reader, clock: c, counts: clusterdevices.NewCounts(deviceClasses),
		history: history{Times: []int64{}, Series: []*series{}}}
}

// Filter wraps a handler so that it gets only the requests of callers that may have an answer.
type Filter = func(logr.Logger, http.Handler) (http.Handler, error)

// Handler serves the page. Filter is what requests for data have to pass; mayList says what their callers may list.
func (p *Page) Handler(logger logr.Logger, filter Filter, mayList MayList) (http.Handler, error) {
	mux := http.NewServeMux()
	overview := &document{clock: p.clock, read: p.contents}
	for path, data := range map[string]http.Handler{
		overviewPath: overview,
		historyPath:  &document{clock: p.clock, read: p.past},
		minePath:     newMine(overview, mayList),
	} {
		handler, err := filter(logger.WithValues("path", path), data)
		if err != nil {
			return nil, fmt.Errorf("protecting %s: %w", path, err)
		}
		mux.Handle("GET "+path, handler)
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("opening the files of the page: %w", err)
	}
	static := http.FileServerFS(files)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		static.ServeHTTP(w, r)
	})
	return guarded(mux), nil
}

// guarded makes browsers do no more with the answers than the page needs.
func guarded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		handler.ServeHTTP(w, r)
	})
}

func (p *Page) contents(ctx context.Context) (any, error) {
	objects, err := Read(ctx, p.reader)
	if err != nil {
		return nil, err
	}
	p.counts.Replace(objects.Slices, objects.Classes)
	return ContentsOf(objects, p.counts), nil
}

// past returns a copy of the history: it goes on while the copy is encoded.
func (p *Page) past(context.Context) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history.clone(), nil
}

// Sample notes how queues stand now.
func (p *Page) Sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var queues []*v1alpha1.Queue
	if err := read(ctx, p.reader, &v1alpha1.QueueList{}, apiobjects.Into(&queues)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history.add(p.clock.Now(), view.Queues(queues))
	return nil
}
