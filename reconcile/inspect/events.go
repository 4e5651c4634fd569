package inspect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

const (
	// liveEvery is how often a page that is followed is drawn anew, at least.
	liveEvery = time.Second
	// liveShare is the greatest share of a processor's time that one stream takes: a page that took long is drawn less
	// often.
	liveShare = 20
	// maxStreams is how many pages can be followed at once.
	maxStreams = 32
)

// stream answers with server-sent events: the HTML of the page, as a JSON string, when it has changed. It ends with
// the request, and so when the Manager stops.
func (h *handler) stream(w http.ResponseWriter, req *http.Request, from source) {
	if _, recorded := from.(*Bundle); recorded {
		http.Error(w, "a bundle does not change", http.StatusNotFound)
		return
	}
	if h.streams.Add(1) > maxStreams {
		h.streams.Add(-1)
		http.Error(w, "too many pages are followed at once", http.StatusServiceUnavailable)
		return
	}
	defer h.streams.Add(-1)
	query := req.URL.Query()
	name := query.Get("page")
	if name == "overview" {
		name = "index"
	}
	header, out := w.Header(), http.NewResponseController(w)
	header.Set("Content-Type", "text/event-stream")
	var last []byte
	for {
		began := time.Now()
		v, status := h.view(req.Context(), from, name, query)
		if status != http.StatusOK {
			http.Error(w, v.problem, status)
			return
		}
		html, err := v.html()
		if err != nil {
			http.Error(w, "the page cannot be written", http.StatusInternalServerError)
			return
		}
		// A JSON string has no line feed, at which an event would end.
		event, err := json.Marshal(string(html))
		if err != nil {
			return
		}
		if !bytes.Equal(event, last) {
			last = event
			if _, err := w.Write(append(append([]byte("data: "), event...), "\n\n"...)); err != nil {
				return
			}
			if out.Flush() != nil {
				return
			}
		}
		pause := time.NewTimer(max(liveEvery, liveShare*time.Since(began)))
		select {
		case <-pause.C:
		case <-req.Context().Done():
			pause.Stop()
			return
		}
	}
}
