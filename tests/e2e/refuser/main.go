// Command refuser is an admission webhook that refuses whatever it is asked
// about. It serves TLS on :8443 with /tls/tls.crt and /tls/tls.key.
package main

import (
	"encoding/json"
	"log"
	"net/http"
)

type review struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Request    *request        `json:"request,omitempty"`
	Response   json.RawMessage `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
}

func refuse(w http.ResponseWriter, r *http.Request) {
	var asked review
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	asked.Response, _ = json.Marshal(map[string]any{
		"uid":     asked.Request.UID,
		"allowed": false,
		"status":  map[string]string{"message": "the pod does not want it"},
	})
	asked.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(asked)
	log.Print("refused")
}

func main() {
	http.HandleFunc("/refuse", refuse)
	log.Print("listening")
	log.Fatal(http.ListenAndServeTLS(":8443", "/tls/tls.crt", "/tls/tls.key", nil))
}
