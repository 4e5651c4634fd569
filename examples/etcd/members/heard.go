package members

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// received is the metric with the bytes of raft's messages by their sender. The metric for active peers is of no use
// here: it counts connections, also those that have been silent for minutes.
const received = "etcd_network_peer_received_bytes_total"

// Heard implements Etcd.
func (client Client) Heard(ctx context.Context, url string) (map[uint64]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: client.TLS}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: %s", url, answer.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", url, err)
	}
	heard := map[uint64]float64{}
	for _, m := range families[received].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() != "From" {
				continue
			}
			id, err := strconv.ParseUint(label.GetValue(), 16, 64)
			if err != nil {
				return nil, fmt.Errorf("metrics of %s: %w", url, err)
			}
			heard[id] = m.GetCounter().GetValue()
		}
	}
	return heard, nil
}
