//! Rows as a table, CSV, JSON lines or Parquet.

use std::sync::Arc;

use mapwire_study::cost::CostRange;
use mapwire_study::counts::Causes;
use mapwire_study::rows::{COLUMNS, Kind, Row};
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::Value;

use super::super::LabError;
use super::super::output::{self, grouped};
use super::Format;

pub(crate) fn bytes(rows: &[Row], format: Format) -> Result<Vec<u8>, LabError> {
    Ok(match format {
        Format::Table => table(rows).into_bytes(),
        Format::Csv => csv(rows).into_bytes(),
        Format::Json => rows.iter().map(|row| format!("{}\n", row.to_json())).collect::<String>().into_bytes(),
        Format::Parquet => parquet(rows)?,
    })
}

fn table(rows: &[Row]) -> String {
    type Shown = fn(&Row) -> Option<String>;
    fn rate(row: &Row, count: u64) -> String {
        format!("{:.4}", count as f64 / row.outcome.counts.lookups.max(1) as f64)
    }
    fn cause(row: &Row, count: impl Fn(Causes) -> u64) -> Option<String> {
        row.outcome.causes.map(|causes| rate(row, count(causes)))
    }
    let columns: [(&str, Shown); 14] = [
        ("trace", |row| Some(row.trace.clone())),
        ("configuration", |row| Some(row.configuration.to_string())),
        ("lookups", |row| Some(grouped(row.outcome.counts.lookups))),
        ("check misses", |row| Some(rate(row, row.outcome.counts.check_misses))),
        ("NIC misses", |row| Some(rate(row, row.outcome.counts.nic_misses))),
        ("compulsory", |row| cause(row, |causes| causes.compulsory)),
        ("capacity", |row| cause(row, |causes| causes.capacity)),
        ("conflict", |row| cause(row, |causes| causes.conflict)),
        ("pins", |row| Some(rate(row, row.outcome.counts.pins))),
        ("unpins", |row| Some(rate(row, row.outcome.counts.unpins))),
        ("interrupts", |row| Some(rate(row, row.outcome.counts.interrupts))),
        ("NIC bytes", |row| row.nic_bytes.map(grouped)),
        ("us/lookup", |row| row.cost.map(cost_text)),
        ("unlimited", |row| row.unlimited_cost.map(cost_text)),
    ];
    let cells = |row: &Row| columns.iter().map(|(_, value)| value(row).unwrap_or_else(|| "-".to_owned())).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    // A column without a value in any row is left out.
    let has_value = |at: &usize| cells.is_empty() || cells.iter().any(|row| row[*at] != "-");
    let shown: Vec<usize> = (0..columns.len()).filter(has_value).collect();
    let headings: Vec<_> = shown.iter().map(|at| columns[*at].0).collect();
    let cells = cells.iter().map(|row| shown.iter().map(|at| row[*at].clone()).collect());
    let mut text = output::fitted(&headings, &cells.collect::<Vec<_>>(), 2, output::known_columns());
    if let Some(row) = rows.first() {
        text.push_str(&format!("counts are per lookup; costs: {}\n", row.profile));
    }
    text
}

fn cost_text(cost: CostRange) -> String {
    if cost.is_exact() {
        format!("{:.3}", cost.low.us())
    } else {
        format!("{:.3}-{:.3}", cost.low.us(), cost.high.us())
    }
}

/// Rows of values under their names; what is missing is left out, what needs quotes has them.
fn csv(rows: &[Row]) -> String {
    let field = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let names: Vec<_> = COLUMNS.iter().map(|column| column.0).collect();
    let mut text = names.join(",") + "\n";
    for row in rows {
        let fields: Vec<_> = row.values().iter().map(field).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn parquet(rows: &[Row]) -> Result<Vec<u8>, LabError> {
    let fields = COLUMNS.iter().map(|(name, kind, _)| {
        let (physical, converted) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Kind::Count => (Physical::INT64, ConvertedType::UINT_64),
            Kind::Signed => (Physical::INT64, ConvertedType::NONE),
            Kind::Switch => (Physical::BOOLEAN, ConvertedType::NONE),
            Kind::Rate => (Physical::DOUBLE, ConvertedType::NONE),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted);
        field.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("study").with_fields(fields).build()?);
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(WriterProperties::builder().build()))?;
    let mut group = writer.next_row_group()?;
    let table: Vec<Vec<Value>> = rows.iter().map(Row::values).collect();
    for at in 0..COLUMNS.len() {
        let column: Vec<&Value> = table.iter().map(|row| &row[at]).collect();
        let levels: Vec<i16> = column.iter().map(|value| i16::from(!value.is_null())).collect();
        let Some(mut writer) = group.next_column()? else { break };
        match writer.untyped() {
            ColumnWriter::BoolColumnWriter(writer) => {
                let values: Vec<bool> = column.iter().filter_map(|value| value.as_bool()).collect();
                writer.write_batch(&values, Some(&levels), None)?;
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let number = |value: &&Value| value.as_i64().or_else(|| value.as_u64().map(|number| number as i64));
                let values: Vec<i64> = column.iter().filter_map(number).collect();
                writer.write_batch(&values, Some(&levels), None)?;
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let values: Vec<f64> = column.iter().filter_map(|value| value.as_f64()).collect();
                writer.write_batch(&values, Some(&levels), None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let values: Vec<ByteArray> =
                    column.iter().filter_map(|value| value.as_str()).map(ByteArray::from).collect();
                writer.write_batch(&values, Some(&levels), None)?;
            }
            _ => {}
        }
        writer.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_study::config::Configuration;
    use mapwire_study::study::Outcome;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    fn rows() -> Vec<Row> {
        let row = |trace: &str, lookups| {
            let mut outcome = Outcome::default();
            outcome.counts.lookups = lookups;
            Row {
                trace: trace.to_owned(),
                configuration: Configuration::new(mapwire_settings::parse_design("hierarchical,ways=2").unwrap()),
                nodes: 1,
                outcome,
                unlimited: None,
                nic_bytes: None,
                cost: None,
                unlimited_cost: None,
                profile: "papers".to_owned(),
                left_out: 0,
            }
        };
        vec![row("a", 5), row("b,\"c\"", 1 << 40)]
    }

    #[test]
    fn csv_quotes_what_needs_it_and_leaves_out_what_is_missing() {
        let text = csv(&rows());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("trace,design,configuration,entries,ways,"));
        assert!(
            lines[1].starts_with("a,hierarchical,\"hierarchical,ways=2\",8192,2,1,true,1,,,1,1,5,"),
            "{}",
            lines[1]
        );
        assert!(lines[2].starts_with("\"b,\"\"c\"\"\",hierarchical,"));
        assert!(lines[1].ends_with(",,papers,0"), "{}", lines[1]);
    }

    #[test]
    fn parquet_reads_back_as_it_was_written() {
        let file = bytes::Bytes::from(parquet(&rows()).unwrap());
        let reader = SerializedFileReader::new(file).unwrap();
        let back: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(back.len(), 2);
        let field = |row: usize, name: &str| {
            back[row].get_column_iter().find(|column| column.0 == name).map(|column| column.1.clone()).unwrap()
        };
        assert_eq!(field(1, "trace"), Field::Str("b,\"c\"".to_owned()));
        assert_eq!(field(1, "lookups"), Field::ULong(1 << 40));
        assert_eq!(field(0, "offset"), Field::Bool(true));
        assert_eq!(field(0, "cost_us"), Field::Null);
        assert_eq!(field(0, "check_miss_rate"), Field::Double(0.0));
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let text = table(&rows());
        // More where the terminal of the test is narrow.
        assert!(text.lines().count() >= 4, "{text}");
        assert!(text.contains("1,099,511,627,776"));
    }
}
