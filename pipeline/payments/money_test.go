package payments_test

import (
	"math"
	"testing"

	"sluice/pipeline/payments"
)

// An amount is printed with the decimals that its currency has by ISO 4217.
func TestMoneyText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		amount   int64
		currency string
		want     string
	}{
		{1999, "EUR", "19.99 EUR"},
		{5, "EUR", "0.05 EUR"},
		{50, "USD", "0.50 USD"},
		{0, "EUR", "0.00 EUR"},
		{100, "EUR", "1.00 EUR"},
		{-1, "EUR", "-0.01 EUR"},
		{-1999, "EUR", "-19.99 EUR"},
		{1999, "JPY", "1999 JPY"},
		{0, "KRW", "0 KRW"},
		{-7, "JPY", "-7 JPY"},
		{1999, "KWD", "1.999 KWD"},
		{1, "BHD", "0.001 BHD"},
		{1999, "IQD", "1.999 IQD"},
		{1999, "CLF", "0.1999 CLF"},
		{12345, "UYW", "1.2345 UYW"},
		{1999, "PKR", "19.99 PKR"},
		{1999, "RSD", "19.99 RSD"}, // 0 decimals in tables that are made for display
		{math.MaxInt64, "EUR", "92233720368547758.07 EUR"},
		{math.MinInt64, "EUR", "-92233720368547758.08 EUR"},
		{0, "", ""},
	} {
		if got := payments.MoneyText(test.amount, test.currency); got != test.want {
			t.Errorf("%d of %s: got %q, want %q", test.amount, test.currency, got, test.want)
		}
	}
}
