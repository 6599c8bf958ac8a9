package api

import (
	_ "embed"
	"net/http"
)

// OpenAPI is the document that describes this API, OpenAPI 3.1 in YAML. It is
// checked against the handlers by this package's tests. x-scope is the scope
// that an operation needs, x-max-bytes the size of its body, x-code the code of
// a body that is refused.
//
//go:embed openapi.yaml
var OpenAPI []byte

// openapi is GET /openapi.yaml.
func (a *API) openapi(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", mediaYAML)
	_, _ = w.Write(OpenAPI) // a client that is gone cannot be told
	return nil
}
